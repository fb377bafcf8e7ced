"""scikit-learn's 1,797 images of digits, 8 by 8, for training and for testing: numpy alone.

Source: https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits
"""

import numpy as np

TEST_ROWS = 360


def digits() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """`(images [N, 1, 8, 8] float32 from 0 to 1, labels [N] int64)` for training, and the same for testing.

    Raises:
      ImportError: where scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ImportError("the images come with scikit-learn: pip install 'graphmode[weights]'") from None
    found = load_digits()
    images = (found.images[:, None] / 16).astype(np.float32)
    labels = found.target.astype(np.int64)
    order = np.random.default_rng(0).permutation(len(labels))
    test, train = order[:TEST_ROWS], order[TEST_ROWS:]
    return (images[train], labels[train]), (images[test], labels[test])
