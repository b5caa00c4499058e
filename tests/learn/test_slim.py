"""The slimmable network learns small pictures at every width, in seconds, and survives its file."""

import numpy as np
import pytest
import torch

from trimtab.serving.net.segments import Segments
from trimtab.serving.net.slim_form import row_of
from trimtab.serving.net.slim_net import arrays_of, network
from trimtab.serving.net.slim_weights import Weights, as_stored
from trimtab.serving.nouns import TUPLES
from trimtab.serving.training.images import Feed, Images
from trimtab.serving.training.slim import fresh
from trimtab.serving.training.slim_learner import Learner, Settings, accuracies, train

QUICK = dict(
    steps=100, batch=64, channels=16, learning_rate=0.4, mix=0.1, average=0.9, smoothing=0.05
)
CLASSES = 6


def stripes(count, seed):
    """Stripes of three slants in two frequencies, of any phase and colour, under noise: no pixel
    by itself tells the class, and a flip of the left and right sides keeps it.
    """
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=count)
    down, across = np.meshgrid(np.arange(8), np.arange(8), indexing="ij")
    slant = np.stack([down, across, down + across])[labels % 3]
    often = np.array([0.8, 2.0])[labels // 3][:, None, None]
    wave = np.sin(slant * often + rng.uniform(0, 6.28, (count, 1, 1)))
    colour = rng.uniform(20, 60, (count, 1, 1, 3))
    pixels = 128 + wave[..., None] * colour + rng.normal(0, 10, (count, 8, 8, 3))
    return Images(pixels.clip(0, 255).astype(np.uint8), labels, tuple("abcdef"))


@pytest.fixture(scope="module")
def trained():
    torch.set_num_threads(1)
    on, held = Settings(**QUICK).check(), stripes(300, 1)
    images = stripes(1_500, 0)
    learner = Learner(on, fresh(on, images))
    told = list(train(learner, Feed(images, on.batch, on.mix, 0, "cpu"), held, looks=2))
    return learner, held, told, accuracies(learner.kept, held.pixels, held.labels)


def test_it_learns_at_all_256_tuples_of_widths(trained):
    right = trained[3]
    assert right.shape == (256,)
    assert right.min() > 3 / CLASSES  # chance is one in six


def test_the_loss_falls(trained):
    losses = [told.loss for told in trained[2] if told.loss == told.loss]
    assert len(losses) == 2
    assert losses[1] < losses[0]


def test_the_widest_is_good_and_not_worse_than_the_slimmest(trained):
    right = trained[3]
    assert right[row_of((3, 3, 3, 3))] > 0.85
    assert right[row_of((3, 3, 3, 3))] >= right[row_of((0, 0, 0, 0))] - 0.03


def test_what_is_told_are_the_uniform_widths(trained):
    last, right = trained[2][-1], trained[3]
    uniform = [right[row_of((width,) * 4)] for width in range(4)]
    assert [last.right_25, last.right_50, last.right_75, last.right_100] == uniform


def test_quantisation_costs_no_accuracy(trained):
    learner, held, _, right = trained
    stored = network(learner.kept.form, as_stored(arrays_of(learner.kept)))
    after = accuracies(stored, held.pixels, held.labels)
    assert np.abs(after - right).max() <= 0.03  # a few of 300 pictures at any tuple
    assert abs(after.mean() - right.mean()) < 0.005


def test_exported_segments_get_as_many_right(trained):
    learner, held, _, _ = trained
    arrays = as_stored(arrays_of(learner.kept))
    segments = Segments(Weights(learner.kept.form, arrays, {}))
    pixels = np.ascontiguousarray(held.pixels.transpose(0, 3, 1, 2), np.float32) / 255
    stored = network(learner.kept.form, arrays)
    chosen = [TUPLES[row] for row in (0, 27, 141, 255)]
    expected = accuracies(stored, held.pixels, held.labels, chosen)
    for widths, share in zip(chosen, expected):
        x = pixels
        for segment, width in enumerate(widths):
            x = segments.run(segment, widths[max(segment - 1, 0)], width, x)
        assert abs((x.argmax(1) == held.labels).mean() - share) < 0.005
