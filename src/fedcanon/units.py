"""Units of memory: the number of bytes in a mebibyte and a gibibyte."""

MIB = 2**20
GIB = 2**30
