"""Embedding tables: their specs, and the engines that hold, look up and train them."""

from typing import TYPE_CHECKING

from transforms.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from trainer.embedding.batches import IdBatch as IdBatch
    from trainer.embedding.cpu_engine import CpuEngine as CpuEngine
    from trainer.embedding.engine import TableState as TableState
    from trainer.embedding.optimizers import FTRL as FTRL
    from trainer.embedding.optimizers import SGD as SGD
    from trainer.embedding.optimizers import Adagrad as Adagrad
    from trainer.embedding.optimizers import AdagradMomentum as AdagradMomentum
    from trainer.embedding.optimizers import Adam as Adam
    from trainer.embedding.optimizers import Optimizer as Optimizer
    from trainer.embedding.optimizers import RowWiseAdagrad as RowWiseAdagrad
    from trainer.embedding.spec import Constant as Constant
    from trainer.embedding.spec import FeatureSpec as FeatureSpec
    from trainer.embedding.spec import Initializer as Initializer
    from trainer.embedding.spec import Normal as Normal
    from trainer.embedding.spec import Quantization as Quantization
    from trainer.embedding.spec import TableSpec as TableSpec
    from trainer.embedding.spec import Uniform as Uniform
    from trainer.embedding.tensorflow_settings import from_tensorflow as from_tensorflow
    from trainer.embedding.tensorflow_settings import to_tensorflow as to_tensorflow

__getattr__, __dir__, __all__ = lazy_exports(__name__)
