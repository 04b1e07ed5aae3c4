"""x"""


class Remedy: ...


def remedies_for(): ...
