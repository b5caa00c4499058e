"""Pictures are read from folders and sheets, and augmented without losing their class."""

import io
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

from trimtab.errors import ServeError
from trimtab.serving.training.images import (
    Batch,
    Feed,
    Images,
    batches_of,
    cropped,
    jittered,
    mean_and_spread,
    mixed,
    mixed_loss,
    read_images,
)


def encoded(pixels, kind="png"):
    file = io.BytesIO()
    options = {"lossless": True} if kind == "webp" else {}
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


def noise(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def drawn(seed=0):
    return torch.Generator().manual_seed(seed)


def test_a_folder_of_classes_is_read_in_the_order_of_names(tmp_path):
    pixels = noise(3, 8, 8, 3)
    for row, name in enumerate(["cat/1.png", "cat/2.png", "ant/1.png"]):
        path = tmp_path / "train" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(pixels[row]))
    found = read_images(tmp_path, "train", side=8)
    assert found.classes == ("ant", "cat")
    assert found.labels.tolist() == [0, 1, 1]
    assert np.array_equal(found.pixels, pixels[[2, 0, 1]])


def test_sheets_in_tar_files_are_cut_row_by_row(tmp_path):
    pixels = noise(2, 6, 8, 8, 3)  # two classes of six pictures, two down and three across
    for part, rows in (("train0", [0]), ("train1", [1])):
        with tarfile.open(tmp_path / f"{part}.tar", "w") as tar:
            for row in rows:
                grid = pixels[row].reshape(2, 3, 8, 8, 3).swapaxes(1, 2).reshape(16, 24, 3)
                content = encoded(grid, "webp")
                member = tarfile.TarInfo(f"{part}/{row:02}_{'ab'[row]}_fish.webp")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    found = read_images(tmp_path, "train", side=8)
    assert found.classes == ("a_fish", "b_fish")
    assert found.labels.tolist() == [0] * 6 + [1] * 6
    assert np.array_equal(found.pixels, pixels.reshape(12, 8, 8, 3))


def test_a_folder_without_pictures_says_what_to_give(tmp_path):
    with pytest.raises(ServeError, match=r"neither test\*\.tar nor a folder test"):
        read_images(tmp_path, "test")
    (tmp_path / "test").mkdir()
    with pytest.raises(ServeError, match="0 classes"):
        read_images(tmp_path, "test")


@pytest.mark.parametrize(
    ("content", "said"), [(b"no picture", "not a picture"), (None, "12 x 12 pixels are no grid")]
)
def test_a_file_that_is_no_picture_is_named(tmp_path, content, said):
    for name in ("a", "b"):
        (tmp_path / "train" / name).mkdir(parents=True)
        (tmp_path / "train" / name / "1.png").write_bytes(content or encoded(noise(12, 12, 3)))
    with pytest.raises(ServeError, match=rf"1\.png: {said}"):
        read_images(tmp_path, "train", side=8)


def test_a_cut_tar_file_is_named(tmp_path):
    (tmp_path / "train0.tar").write_bytes(b"x" * 700)
    with pytest.raises(ServeError, match=r"train0\.tar: not a whole tar file"):
        read_images(tmp_path, "train")


def test_mean_and_spread_are_those_of_the_pixels():
    pixels = noise(5, 8, 8, 3)
    mean, spread = mean_and_spread(pixels)
    assert mean == pytest.approx((pixels / 255).mean((0, 1, 2)).tolist())
    assert spread == pytest.approx((pixels / 255).std((0, 1, 2)).tolist())


def test_a_crop_is_a_window_of_the_padded_picture_or_its_mirror():
    pixels = noise(40, 12, 12, 3)  # 8 and 2 on each side
    found = cropped(torch.from_numpy(pixels), torch.arange(40), 8, 2, drawn())
    seen = set()
    for row in range(40):
        ours = (found[row].permute(1, 2, 0) * 255).round().byte().numpy()
        places = [
            (down, across, flip)
            for down in range(5)
            for across in range(5)
            for flip in (1, -1)
            if np.array_equal(ours, pixels[row, down : down + 8, across : across + 8][:, ::flip])
        ]
        assert len(places) == 1
        seen.update(places)
    assert len(seen) > 15  # of 50


def test_jitter_keeps_pixels_in_range_and_half_of_the_pictures_as_they_are():
    x = torch.rand(200, 3, 8, 8, generator=drawn())
    found = jittered(x, drawn(1))
    same = torch.isclose(found, x, atol=1e-5).flatten(1).all(1)
    assert found.min() >= 0 and found.max() <= 1
    assert 60 < int(same.sum()) < 140


def test_a_mixed_picture_has_the_pixels_of_two_by_their_shares():
    # picture k is black or white; its mean is then the share of the white one
    x = torch.zeros(300, 3, 8, 8)
    x[150:] = 1.0
    labels = torch.arange(300)
    found = mixed(x, labels, 0.6, drawn())
    white = x.mean((1, 2, 3))
    expected = white[found.first] * found.share + white[found.second] * (1 - found.share)
    assert torch.allclose(found.x.mean((1, 2, 3)), expected, atol=1e-5)
    plain = found.share == 1
    assert 100 < int(plain.sum()) < 160  # four tenths, and a few whose square missed every pixel
    assert torch.equal(found.x[plain], x[plain])


def test_without_mixing_pictures_stay_whole():
    x, labels = torch.rand(20, 3, 8, 8), torch.arange(20)
    found = mixed(x, labels, 0.0, drawn())
    assert torch.equal(found.x, x)
    assert (found.share == 1).all()


def test_the_loss_of_a_mixed_picture_is_shared_by_its_classes():
    logits = torch.randn(4, 5, generator=drawn())
    first, second = torch.tensor([0, 1, 2, 3]), torch.tensor([4, 3, 2, 1])
    share = torch.tensor([1.0, 0.25, 0.5, 0.0])
    logs = logits.log_softmax(1)
    by_hand = -(share * logs[range(4), first] + (1 - share) * logs[range(4), second]).mean()
    assert mixed_loss(logits, Batch(logits, first, second, share), 0.0) == pytest.approx(
        float(by_hand)
    )


def test_an_epoch_has_every_picture_once_and_the_next_another_order():
    images = Images(noise(12, 8, 8, 3), np.arange(12), tuple("abcdefghijkl"))
    feed = Feed(images, 4, 0.0, seed=3, device="cpu")
    first = [row for step in range(3) for row in feed.at(step).first.tolist()]
    second = [row for step in range(3, 6) for row in feed.at(step).first.tolist()]
    assert sorted(first) == sorted(second) == list(range(12))
    assert first != second


def test_a_batch_depends_on_the_seed_and_the_step_alone():
    images = Images(noise(12, 8, 8, 3), np.arange(12), tuple("abcdefghijkl"))
    feed = Feed(images, 4, 0.5, seed=3, device="cpu")
    later = feed.at(7)
    again = Feed(images, 4, 0.5, seed=3, device="cpu")
    assert all(torch.equal(a, b) for a, b in zip(again.at(7), later))
    assert not torch.equal(Feed(images, 4, 0.5, seed=4, device="cpu").at(7).x, later.x)


def test_a_batch_larger_than_the_pictures_is_refused():
    images = Images(noise(3, 8, 8, 3), np.arange(3), tuple("abc"))
    with pytest.raises(ServeError, match="batch=4: there are 3 pictures"):
        Feed(images, 4, 0.0, seed=0, device="cpu")


def test_plain_batches_are_the_pictures_in_order():
    images = Images(noise(5, 8, 8, 3), np.arange(5), tuple("abcde"))
    found = list(batches_of(images, 2, "cpu"))
    x = torch.cat([one for one, _ in found])
    assert [len(y) for _, y in found] == [2, 2, 1]
    assert np.array_equal((x * 255).round().byte().permute(0, 2, 3, 1).numpy(), images.pixels)
