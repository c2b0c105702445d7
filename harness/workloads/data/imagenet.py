"""ImageNet (Russakovsky et al., 2015) or any image folders: imagenet/{train,val}/<class>/.

The transforms are those of the torchvision training reference at 224 px.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from harness.workloads.data.base import Shape, data_folder, not_found
from harness.workloads.data.samples import Loaded

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's channels
MARGIN = 256 / 224  # test images are resized to this times `size` before the centre is cut out
CLASSES = 1000
LAYOUT = "imagenet/train/<class>/*.JPEG and imagenet/val/<class>/*.JPEG"


@dataclass(frozen=True)
class ImageNet:
    """Image folders, read by `workers` processes at each rank."""

    name: str = "imagenet"
    folder: str | None = None
    classes: int = CLASSES
    size: int = 224  # px
    workers: int = 4  # 0: read in the training process
    metric: ClassVar[str] = "accuracy"

    def __post_init__(self) -> None:
        if self.classes < 1:
            raise ValueError(f"classes must be >= 1, got {self.classes}")
        if not 8 <= self.size <= 1024:
            raise ValueError(f"size must be in [8, 1024] px, got {self.size}")
        if self.workers < 0:
            raise ValueError(f"workers must be >= 0, got {self.workers}")

    @property
    def published(self) -> int | None:
        return 1_281_167 if self.classes == CLASSES else None

    @property
    def shape(self) -> Shape:
        return 3, self.size, self.size

    def check(self) -> None:
        for split in ("train", "val"):
            found = len(self._classes(split))
            if found != self.classes:
                raise self._not_found(f"{found} class folders in imagenet/{split}")
        if self._classes("train") != self._classes("val"):
            raise self._not_found("imagenet/train and imagenet/val have different class folders")

    def train(self) -> Loaded:
        from torchvision import transforms  # slow to import

        crop = transforms.RandomResizedCrop(self.size)
        return self._split("train", crop, transforms.RandomHorizontalFlip())

    def test(self) -> Loaded:
        from torchvision import transforms

        resize = transforms.Resize(round(self.size * MARGIN))
        return self._split("val", resize, transforms.CenterCrop(self.size))

    def _split(self, split: str, *steps: Any) -> Loaded:
        from torchvision import datasets, transforms

        self.check()
        to_tensor = transforms.ToTensor(), transforms.Normalize(MEAN, DEVIATION)
        transform = transforms.Compose([*steps, *to_tensor])
        return Loaded(datasets.ImageFolder(self._folder(split), transform), self.workers)

    def _not_found(self, problem: str) -> FileNotFoundError:
        layout = f"{LAYOUT} with {self.classes} classes (dataset.classes)"
        return not_found(self.name, data_folder(self.folder), problem, layout)

    def _folder(self, split: str) -> Path:
        return data_folder(self.folder) / "imagenet" / split

    def _classes(self, split: str) -> set[str]:
        folder = self._folder(split)
        entries = folder.iterdir() if folder.is_dir() else ()
        return {entry.name for entry in entries if entry.is_dir()}
