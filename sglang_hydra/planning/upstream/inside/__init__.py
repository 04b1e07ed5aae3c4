"""What runs inside an environment that has SGLang: its own argument code, on a machine that is said and not there.

Programs of their own, run by their path with the environment's interpreter: nothing here imports the rest of this
package, and nothing but the standard library until SGLang itself. `sealed` is for a release whose every question is
known (0.5.2): all other packages are inert, so that the environment need not even have them. `live` is for later
releases: their own libraries run, and only the hardware, its tools and the compiled kernels are stood in for.

`released`, `world`, `inert` and `outcome` are the sealed way; tools/record_conformance.py records with them too.
"""
