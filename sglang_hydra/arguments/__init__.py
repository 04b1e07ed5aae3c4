"""SGLang's arguments: the fields and the command line of the specified release, and those of later releases."""
