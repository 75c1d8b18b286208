"""`python -m mutation`"""

import sys

from mutation.runner import main

if __name__ == "__main__":
    sys.exit(main())
