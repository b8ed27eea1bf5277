"""Embedding tables: their specs, and the engines that hold, look up and train them."""

from typing import TYPE_CHECKING

from transforms.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from trainer.tables.batches import IdBatch as IdBatch
    from trainer.tables.engine import TableState as TableState
    from trainer.tables.optimizers import FTRL as FTRL
    from trainer.tables.optimizers import SGD as SGD
    from trainer.tables.optimizers import Adagrad as Adagrad
    from trainer.tables.optimizers import AdagradMomentum as AdagradMomentum
    from trainer.tables.optimizers import Adam as Adam
    from trainer.tables.optimizers import Optimizer as Optimizer
    from trainer.tables.optimizers import RowWiseAdagrad as RowWiseAdagrad
    from trainer.tables.routes.cpu_engine import CpuEngine as CpuEngine
    from trainer.tables.spec import Constant as Constant
    from trainer.tables.spec import FeatureSpec as FeatureSpec
    from trainer.tables.spec import Initializer as Initializer
    from trainer.tables.spec import Normal as Normal
    from trainer.tables.spec import Quantization as Quantization
    from trainer.tables.spec import TableSpec as TableSpec
    from trainer.tables.spec import Uniform as Uniform
    from trainer.tables.tensorflow_settings import from_tensorflow as from_tensorflow
    from trainer.tables.tensorflow_settings import to_tensorflow as to_tensorflow

__getattr__, __dir__, __all__ = lazy_exports(__name__)
