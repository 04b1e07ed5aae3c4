"""Everything that touches a machine: starting and watching servers, examining machines, explaining failed servers."""
