"""python -m ashlar."""

import sys

from ashlar.command import module_main

if __name__ == "__main__":
    sys.exit(module_main(sys.argv[1:]))
