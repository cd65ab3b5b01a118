# SPDX-License-Identifier: Apache-2.0
"""Make the pictures of the README: `python docs/make_images.py RUN`.

RUN is a run of the cartpole (or pretrained:NAME). Writes docs/images/cartpole.gif, six seconds of the neural
model beside the analytic solver from the first start of seed 500, under 1.5 MB.
"""

import sys
from pathlib import Path

IMAGES = Path(__file__).resolve().parent / "images"


def main(run: str) -> None:
    """Write the pictures."""
    from neurodyn.fit.recording import record_run
    from neurodyn.fit.recording_files import readme_gif

    path = IMAGES / "cartpole.gif"
    size = readme_gif(record_run(run, seconds=6.0), path)
    print(f"{path}: {size / 1e6:.2f} MB")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
