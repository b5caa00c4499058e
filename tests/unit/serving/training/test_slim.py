"""The training of the slimmable network: its step, schedule, checkpoint and weight file."""

import io
import math
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

from trimtab.errors import PolicyError, ServeError
from trimtab.serving.net.slim_form import row_of
from trimtab.serving.net.slim_weights import load
from trimtab.serving.nouns import SEGMENTS, TUPLES
from trimtab.serving.training.images import Feed, Images
from trimtab.serving.training.slim import NETWORK, fresh, train_slim
from trimtab.serving.training.slim_learner import (
    SLIMMEST,
    UNIFORM,
    WIDEST,
    Learner,
    Settings,
    accuracies,
    distilled,
    rate_at,
    sandwich,
    train,
)

pytestmark = pytest.mark.slow

TINY = dict(batch=8, channels=8, learning_rate=0.1)


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def pictures(count=16, side=8, seed=0):
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (count, side, side, 3), dtype=np.uint8)
    return Images(pixels, rng.integers(3, size=count), tuple("abc"))


def learner_of(**settings):
    on = Settings(**TINY | settings).check()
    images = pictures()
    return Learner(on, fresh(on, images)), Feed(images, on.batch, on.mix, on.seed, "cpu")


def folder(path, count=4):
    """Two sheets of 32 x 32 pictures for training and test."""
    for part in ("train", "test"):
        with tarfile.open(path / f"{part}.tar", "w") as tar:
            for name in ("00_a.png", "01_b.png"):
                rng = np.random.default_rng(len(part) + ord(name[3]))
                sheet = rng.integers(0, 256, (32, 32 * count, 3), dtype=np.uint8)
                file = io.BytesIO()
                Image.fromarray(sheet).save(file, "png")
                member = tarfile.TarInfo(name)
                member.size = file.tell()
                file.seek(0)
                tar.addfile(member, file)
    return str(path)


def test_a_sandwich_is_the_widest_the_slimmest_and_two_others():
    drawn = [sandwich(np.random.default_rng(seed)) for seed in range(200)]
    assert all(one[:2] == (WIDEST, SLIMMEST) and len(one) == 4 for one in drawn)
    assert len({widths for one in drawn for widths in one[2:]}) > 150  # of 256, in 400 draws


def test_the_rate_rises_in_a_line_and_falls_by_a_cosine_to_zero():
    on = Settings(learning_rate=1.0, warmup=0.1)
    assert 0 < rate_at(0.0, on) < 0.05
    assert rate_at(0.1, on) == pytest.approx(1.0)
    assert rate_at(0.55, on) == pytest.approx(0.5)
    assert rate_at(1.0, on) == pytest.approx(0.0)


def test_distillation_of_equal_answers_is_zero_and_has_no_gradient():
    logits = torch.randn(4, 5, requires_grad=True)
    loss = distilled(logits, logits.detach(), 2.0)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(0.0, abs=1e-6)
    assert torch.allclose(logits.grad, torch.zeros(4, 5), atol=1e-6)


def test_distillation_by_hand():
    slim, wide = torch.tensor([[0.0, 0.0]]), torch.tensor([[math.log(3.0), 0.0]])
    # from 3/4 and 1/4 to 1/2 and 1/2
    expected = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    assert float(distilled(slim, wide, 1.0)) == pytest.approx(expected)


def test_tuples_that_share_segments_are_as_right_as_each_alone():
    net = learner_of()[0].kept
    images = pictures(40)
    shared = accuracies(net, images.pixels, images.labels)
    x = torch.from_numpy(images.pixels).permute(0, 3, 1, 2) / 255
    for widths in (WIDEST, SLIMMEST, (0, 3, 1, 2), (2, 1, 0, 3)):
        alone = (net(x, widths).argmax(1).numpy() == images.labels).mean()
        assert shared[row_of(widths)] == pytest.approx(alone)


def test_all_tuples_cost_340_segments_a_batch(monkeypatch):
    net = learner_of()[0].kept
    images, calls, plain = pictures(10), [], net.segment
    monkeypatch.setattr(net, "segment", lambda *given: calls.append(given[0]) or plain(*given))
    accuracies(net, images.pixels, images.labels, batch=10)
    assert [calls.count(segment) for segment in range(SEGMENTS)] == [4, 16, 64, 256]
    assert len(TUPLES) == 256


def test_a_step_changes_every_weight_and_moves_the_average_less():
    learner, feed = learner_of(steps=4)
    before = [value.detach().clone() for value in learner.net.parameters()]
    # blocks start as their shortcuts: what is inside them moves from the second step on, at first
    # by less than the last digit of some gains
    for step in range(3):
        learner.update(feed.at(step))
    for old, new, kept in zip(before, learner.net.parameters(), learner.kept.parameters()):
        moved, averaged = (new - old).norm(), (kept - old).norm()
        assert moved > 0
        assert averaged < moved * 1.01


def test_a_training_stopped_and_resumed_ends_as_one_that_was_not():
    whole, feed = learner_of(steps=20)
    list(train(whole, feed, pictures(8, seed=1), looks=1))
    first, _ = learner_of(steps=20)
    list(train(first, feed, pictures(8, seed=1), stop=lambda: first.step >= 10))
    assert first.step == 10
    again, _ = learner_of(steps=20)
    again.load(first.state())
    list(train(again, feed, pictures(8, seed=1)))
    assert again.step == whole.step == 20
    for ours, theirs in zip(again.kept.parameters(), whole.kept.parameters()):
        assert torch.equal(ours, theirs)


def test_minutes_end_a_training_by_the_clock_with_a_rate_that_came_down():
    learner, feed = learner_of(minutes=1.0, steps=1)
    now_s = iter(range(0, 10_000, 15))  # each look at the clock takes 15 s
    told = list(train(learner, feed, pictures(8, seed=1), looks=2, clock=lambda: next(now_s)))
    assert learner.spent_s == 60.0
    assert learner.progress == 1.0
    assert learner.step == told[-1].step == told[-1].steps == 40  # ten steps in each 15 s
    assert learner.optimiser.param_groups[0]["lr"] < 0.2 * learner.on.learning_rate
    assert sum(one.loss == one.loss for one in told) == 2


def test_a_loss_that_is_not_finite_is_an_error_that_names_the_rate():
    learner, feed = learner_of(steps=10)
    with torch.no_grad():
        learner.net.head.weight.fill_(math.nan)
    with pytest.raises(ServeError, match=r"learning_rate=0\.1"):
        list(train(learner, feed, pictures(8, seed=1)))


def test_a_training_leaves_a_weight_file_with_both_tables(tmp_path):
    data = folder(tmp_path)
    told = list(train_slim(tmp_path / "out", data=data, steps=10, command="me", **TINY))
    held = load(tmp_path / "out" / NETWORK)
    assert told[-1].step == 10
    assert held.facts["command"] == "me"
    assert held.facts["classes"] == ["a", "b"]
    assert held.facts["recipe"]["learning_rate"] == 0.1
    assert held.accuracy.shape == np.shape(held.facts["accuracy_trained"]) == (256,)
    uniform = [held.facts["accuracy_trained"][row_of(widths)] for widths in UNIFORM]
    assert [told[-1].right_25, told[-1].right_50, told[-1].right_75, told[-1].right_100] == uniform


def test_a_checkpoint_of_other_settings_is_refused(tmp_path):
    data = folder(tmp_path)
    list(train_slim(tmp_path / "out", data=data, steps=1, **TINY))
    with pytest.raises(PolicyError, match=r"made with mix=0\.5, and now mix=0\.1"):
        list(train_slim(tmp_path / "out", data=data, steps=2, mix=0.1, **TINY))


def test_a_training_that_is_over_tells_nothing_and_a_longer_one_goes_on(tmp_path):
    data, out = folder(tmp_path), tmp_path / "out"
    list(train_slim(out, data=data, steps=1, **TINY))
    assert list(train_slim(out, data=data, steps=1, **TINY)) == []
    assert list(train_slim(out, data=data, steps=3, **TINY))[-1].step == 3


def test_a_broken_checkpoint_is_refused_by_name(tmp_path):
    data, out = folder(tmp_path), tmp_path / "out"
    out.mkdir()
    (out / "checkpoint.pt").write_bytes(b"no")
    with pytest.raises(PolicyError, match=r"checkpoint\.pt: not a checkpoint of ours"):
        list(train_slim(out, data=data, steps=1, **TINY))


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"mix": 2.0}, r"mix=2\.0"), ({"steps": 0}, "steps=0"), ({"average": 1.0}, r"average=1\.0")],
)
def test_a_setting_out_of_range_is_named(tmp_path, settings, named):
    with pytest.raises(ServeError, match=named):
        list(train_slim(tmp_path, data="nowhere", **settings))
