"""Each data set against its own facts."""

import hashlib
import subprocess
import sys

import pytest
import torch

from harness.workloads.data.base import data_folder
from harness.workloads.data.cifar import PADDING, Cifar, crop_and_flip
from harness.workloads.data.digits import Digits, stored
from harness.workloads.data.imagenet import ImageNet
from harness.workloads.data.loader import Batches, shard
from harness.workloads.data.shifted_digits import ShiftedDigits
from harness.workloads.data.synthetic import Synthetic
from tests.data.files import IMAGES_PER_FILE, write_cifar, write_folders


def whole(samples):
    batches = list(shard(samples, 0, 1))
    return torch.cat([batch[0] for batch in batches]), torch.cat([batch[1] for batch in batches])


def test_digits_splits_cover_all_images_with_equal_shares_of_classes():
    train, test = Digits().train(), Digits().test()
    assert (len(train), len(test)) == (1437, 360)
    shares = [part.labels.bincount() / len(part) for part in (train, test)]
    assert (shares[0] - shares[1]).abs().max() < 0.003
    assert torch.equal(Digits().test().images, test.images)


def test_digits_are_bit_for_bit_those_of_earlier_results():
    """As scikit-learn 1.9.1 loads and splits them: its `train_test_split` with seed 0."""
    digests = [hashlib.sha256(part.numpy().tobytes()).hexdigest()[:16] for part in stored()]
    assert digests == ["0f15297f1b579ba9", "b3221c03074e801c", "c1281028e5251b91",
                       "4493b2052e7b4258"]  # fmt: skip


def test_digits_are_enlarged():
    inputs, _ = next(iter(Batches(Digits(size=32).train(), 4, 0, 1, 0)))
    assert inputs.shape == (4, 1, 32, 32)


@pytest.mark.parametrize("classes", [10, 100])
def test_cifar_reads_the_published_format(classes, tmp_path, monkeypatch):
    write_cifar(tmp_path, classes, monkeypatch)
    data = Cifar(classes, str(tmp_path))
    files = 5 if classes == 10 else 1
    assert (len(data.train()), len(data.test())) == (files * IMAGES_PER_FILE, IMAGES_PER_FILE)
    images, _ = whole(data.test())
    assert images.shape[1:] == data.shape and torch.equal(images, whole(data.test())[0])


def test_cifar_is_enlarged(tmp_path, monkeypatch):
    write_cifar(tmp_path, 100, monkeypatch)
    data = Cifar(100, str(tmp_path), size=48)
    assert next(iter(Batches(data.train(), 2, 0, 1, 0)))[0].shape == (2, *data.shape)


def test_a_damaged_file_is_named_as_such(tmp_path, monkeypatch):
    write_cifar(tmp_path, 10, monkeypatch)
    with (tmp_path / "cifar-10-batches-py" / "data_batch_3").open("ab") as file:
        file.write(b"more")
    with pytest.raises(ValueError, match="cifar-10-batches-py is damaged"):
        Cifar(10, str(tmp_path)).train()
    with pytest.raises(ValueError, match="cifar-10-batches-py is damaged"):
        Cifar(10, str(tmp_path)).check_content()


def test_one_missing_file_is_named(tmp_path, monkeypatch):
    write_cifar(tmp_path, 10, monkeypatch)
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").unlink()
    with pytest.raises(FileNotFoundError, match="no cifar-10-batches-py/data_batch_3"):
        Cifar(10, str(tmp_path)).check()


def test_crop_and_flip_moves_the_image_and_mirrors_half():
    images = torch.arange(1.0, 65).view(1, 1, 8, 8).expand(400, 1, 8, 8)
    changed = crop_and_flip(images, torch.Generator().manual_seed(0))
    padded = torch.nn.functional.pad(images[:1], [PADDING] * 4)
    windows = padded.unfold(2, 8, 1).unfold(3, 8, 1).reshape(-1, 64)
    possible = {tuple(window.tolist()) for window in windows}
    plain = [tuple(image.flatten().tolist()) in possible for image in changed]
    mirrored = [tuple(image.flip(-1).flatten().tolist()) in possible for image in changed]
    assert all(one or other for one, other in zip(plain, mirrored, strict=True))
    assert 140 < sum(plain) < 260
    assert len({tuple(image.flatten().tolist()) for image in changed}) > 80  # of 162


def test_image_folders_in_two_processes(tmp_path):
    write_folders(tmp_path / "imagenet", classes=3, train=6, val=2)
    data = ImageNet(folder=str(tmp_path), classes=3, size=24, workers=2)
    data.check()
    inputs, labels = whole(data.test())
    assert inputs.shape == (6, 3, 24, 24) and labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert Batches(data.train(), 3, 0, 2, 0).steps_per_epoch == 3


def test_image_folders_must_have_the_promised_classes(tmp_path):
    write_folders(tmp_path / "imagenet", classes=3, train=1, val=1)
    with pytest.raises(FileNotFoundError, match="3 class folders in imagenet/train.* 1000 classes"):
        ImageNet(folder=str(tmp_path)).check()
    (tmp_path / "imagenet" / "val" / "n00000002").rename(tmp_path / "imagenet" / "val" / "other")
    with pytest.raises(FileNotFoundError, match="have different class folders"):
        ImageNet(folder=str(tmp_path), classes=3).check()


def test_synthetic_samples_are_functions_of_their_index():
    data = Synthetic(length=50, test_length=20)
    stream = data.train().stream([(torch.tensor([7, 3]), ()), (torch.tensor([3]), ())])
    (both, labels), (again, _) = stream
    assert torch.equal(both[1:], again) and labels.tolist() == [7, 3]
    assert not torch.equal(whole(data.test())[0][3], again[0])
    assert not torch.equal(whole(Synthetic(length=50, test_length=20, seed=1).test())[0][3], again)


def test_synthetic_without_patterns_is_noise_alone():
    with_patterns, alone = (
        whole(Synthetic(test_length=500, patterns=patterns, noise=1.0, size=8).test())
        for patterns in (True, False)
    )
    for (inputs, labels), distance in ((with_patterns, (5, 50)), (alone, (0, 4))):
        means = torch.stack([inputs[labels == label].mean(0) for label in (0, 1)])
        assert distance[0] < (means[0] - means[1]).norm() < distance[1]


def test_folder_comes_from_the_environment(monkeypatch, tmp_path):
    assert str(data_folder(str(tmp_path))) == str(tmp_path)
    monkeypatch.setenv("GRADNET_DATA", "/somewhere")
    assert str(data_folder(None)) == "/somewhere"
    monkeypatch.delenv("GRADNET_DATA")
    assert data_folder(None).parts[-1] == "data" and data_folder(None).is_absolute()


def test_checking_does_not_import_torchvision():
    code = (
        "import sys; from harness.workloads.data import cifar, digits, imagenet, synthetic\n"
        "from harness.workloads.models import torchvision_models\n"
        "digits.Digits().check(), synthetic.Synthetic().check()\n"
        "try: cifar.Cifar(10, '/nowhere').check()\n"
        "except FileNotFoundError: pass\n"
        "assert 'torchvision' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_shifted_digits_are_digits_moved_by_a_pixel_with_background_moved_in():
    plain, moved = Digits().train(), ShiftedDigits(shift=1, noise=0.0).train()
    plan = [(torch.arange(64), (1, 2))]
    images, labels = next(moved.stream(plan))
    assert torch.equal(labels, plain.labels[:64])
    padded = torch.nn.functional.pad(plain.images[:64], (1,) * 4, value=float(plain.images.min()))
    found = {
        (down, right)
        for down in range(3)
        for right in range(3)
        for image, around in zip(images, padded, strict=True)
        if torch.equal(image, around[:, down : down + 8, right : right + 8])
    }
    assert len(found) == 9
    labels = ShiftedDigits().test().labels
    assert (len(labels), len(labels.unique())) == (1440, 10)
