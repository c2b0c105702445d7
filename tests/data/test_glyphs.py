"""Glyphs: faces of the test are never trained on, and what is kept is made again if damaged."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from harness.workloads.data import glyphs
from harness.workloads.data.glyphs import FACES, HELD_OUT, Glyphs, characters, drawn
from harness.workloads.data.loader import shard

SMALL = Glyphs(classes=20, length=1_000, test_length=400)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Glyphs:
    """A small set, kept in a folder."""
    data = replace(SMALL, cache=str(tmp_path_factory.mktemp("glyphs")))
    data.train()
    return data


@pytest.fixture(scope="module")
def drawings():
    """Every class by every face, faces of the test last."""
    return drawn(SMALL._fonts(), 200)


def kept(data: Glyphs) -> Path:
    (path,) = Path(str(data.cache)).glob("*.npz")
    return path


def test_no_face_of_the_test_is_trained_on(made):
    trained, tested = (
        {path.stem for path in of} for of in (made.trained_faces(), made.tested_faces())
    )
    assert tested == set(HELD_OUT) and trained | tested == set(FACES) and not trained & tested
    whole = [
        {image.numpy().tobytes() for image in part.images} for part in (made.train(), made.test())
    ]
    assert not whole[0] & whole[1]


def test_images_of_a_split_are_drawn_by_its_own_faces_alone(monkeypatch):
    """Each face draws a plane of one grey, so that a pixel in the middle tells whose it is."""
    grey = {path.stem: 10 * number for number, path in enumerate(SMALL._fonts())}
    planes = [torch.full((20, 64, 64), value, dtype=torch.uint8).numpy() for value in grey.values()]
    monkeypatch.setattr(glyphs, "drawn", lambda fonts, classes: glyphs.np.stack(planes))
    made = replace(SMALL, noise=0.0)._made()
    for split, faces in (("train", SMALL.trained_faces()), ("test", SMALL.tested_faces())):
        found = set(made[split][:, 16, 16].tolist())
        assert found == {grey[path.stem] for path in faces}


def test_classes_have_equal_shares_and_labels_say_what_is_drawn(made, drawings):
    for part in (made.train(), made.test()):
        assert part.labels.bincount().tolist() == [len(part) // 20] * 20
    plain = replace(made, noise=0.0)
    of_classes = drawn(plain._fonts(), 20)
    images, labels = torch.from_numpy(plain._made()["test"]).float(), made.test().labels
    means = torch.stack([images[labels == number].mean(0).flatten() for number in range(20)])
    templates = torch.from_numpy(of_classes[-len(HELD_OUT) :]).float().mean(0)
    templates = torch.nn.functional.avg_pool2d(templates[:, None], 2).flatten(1)
    alike = torch.corrcoef(torch.cat([means, templates]))[:20, 20:]
    right = (alike.argmax(1) == torch.arange(20)).sum()
    assert right >= 18  # of thin signs, moved about, the mean may look like another's


def test_every_class_looks_unlike_all_others_in_every_face(drawings):
    for face in drawings:
        assert len({image.tobytes() for image in face}) == 200
    assert (drawings.max(axis=(2, 3)) > 100).all()


def test_pixels_are_of_0_to_1_and_neither_dark_nor_flat(made):
    images = made.train().images
    assert images.dtype == torch.uint8 and images.shape == (1_000, 1, 32, 32)
    inputs = torch.cat([inputs for inputs, _ in shard(made.train(), 0, 1)])
    grey = inputs * glyphs.DEVIATION + glyphs.MEAN
    assert -1e-6 <= grey.min() and grey.max() <= 1 + 1e-6 and grey.max() > 0.9
    assert abs(inputs.mean()) < 0.2 and 0.8 < inputs.std() < 1.2


def test_noise_is_as_deep_as_it_says():
    grey = glyphs.np.full((100, 32, 32), 128, glyphs.np.uint8)
    found = glyphs._noisy(grey, 0.15, glyphs.np.random.default_rng(0)) / 255
    assert abs(found.std() - 0.15) < 0.002 and abs(found.mean() - 0.5) < 0.003
    assert (glyphs._noisy(grey, 0.0, glyphs.np.random.default_rng(0)) == 128).all()


def test_another_process_makes_the_same_bytes_and_another_seed_does_not(made, tmp_path):
    code = (
        "from harness.workloads.data.glyphs import Glyphs\n"
        f"Glyphs(classes=20, length=1_000, test_length=400, cache={str(tmp_path)!r}).train()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    again = replace(SMALL, cache=str(tmp_path))
    assert kept(again).name == kept(made).name
    for one, other in ((made.train(), again.train()), (made.test(), again.test())):
        assert torch.equal(one.images, other.images)
    other_seed = replace(made, seed=1)._made()
    assert not torch.equal(torch.from_numpy(other_seed["test"]), made.test().images[:, 0])


@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied"])
def test_a_damaged_file_is_made_anew(damage, made, caplog):
    path = kept(made)
    whole = path.read_bytes()
    middle = len(whole) // 2
    path.write_bytes(
        {"cut": whole[:middle], "flipped": whole[:middle] + bytes([whole[middle] ^ 1])
         + whole[middle + 1 :], "emptied": b""}[damage]
    )  # fmt: skip
    made.train()
    assert "is damaged, and made anew" in caplog.text
    assert path.read_bytes() == whole


def test_who_comes_meanwhile_waits_and_it_is_made_once(tmp_path, monkeypatch):
    data, makes = replace(SMALL, cache=str(tmp_path)), []
    make = Glyphs._made
    monkeypatch.setattr(Glyphs, "_made", lambda self: (makes.append(self), make(self))[1])
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: data.test().images, range(3)))
    assert len(makes) == 1 and all(torch.equal(each, found[0]) for each in found)


def test_what_is_kept_is_of_the_fields():
    keys = {SMALL._key(), replace(SMALL, noise=0.1)._key(), replace(SMALL, seed=1)._key()}
    assert len(keys) == 3 and replace(SMALL, cache="elsewhere")._key() == SMALL._key()


def test_characters_are_those_that_all_faces_have():
    found = characters(SMALL._fonts())
    assert {"A", "я", "Ω", "7", "&"} <= set(found) and not {"Á", " ", "漢"} & set(found)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: Glyphs(classes=1), r"classes must be in \[2, 1000\], got 1"),
    (lambda: Glyphs(length=199), r"length must be a number in \[200, 1e\+07\], got 199"),
    (lambda: Glyphs(noise=2.0), r"noise must be in \[0, 1\], got 2.0"),
    (lambda: Glyphs(classes=999, length=999).train(), r"classes must be in \[2, 3\d\d\], "),
])  # fmt: skip
def test_refuses_with_value_and_range(make, message, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ValueError, match=message):
        make()
