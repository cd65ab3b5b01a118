# SPDX-License-Identifier: Apache-2.0
"""`python -m neurodyn`, which torchrun also starts."""

from neurodyn.cli.main import main

if __name__ == "__main__":
    main()
