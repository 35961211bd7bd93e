"""The configuration: every key with its type, default and description.

A YAML file, flags and `--set` overrides are merged in this order, and then checked together. This
package does not import TensorFlow, so that a mistyped key is reported within a second.
"""

from tfnmt.config.building import (
    CHANGEABLE_KEYS,
    END_KEYS,
    INTERVAL_KEYS,
    STEP_KEEPING_KEYS,
    build_config,
    differing_keys,
    dump_config,
    flatten,
)
from tfnmt.config.sections import (
    CleaningConfig,
    Config,
    DataConfig,
    DecodingConfig,
    DiversificationConfig,
    ModelConfig,
    SamplingConfig,
    TokenizerConfig,
    TrainingConfig,
    add_languages,
)
from tfnmt.config.trees import (
    Tree,
    merge,
    parse_overrides,
    preset_names,
    preset_path,
    read_tree,
)

__all__ = [
    "CHANGEABLE_KEYS",
    "END_KEYS",
    "INTERVAL_KEYS",
    "STEP_KEEPING_KEYS",
    "CleaningConfig",
    "Config",
    "DataConfig",
    "DecodingConfig",
    "DiversificationConfig",
    "ModelConfig",
    "SamplingConfig",
    "TokenizerConfig",
    "TrainingConfig",
    "Tree",
    "add_languages",
    "build_config",
    "differing_keys",
    "dump_config",
    "flatten",
    "merge",
    "parse_overrides",
    "preset_names",
    "preset_path",
    "read_tree",
]
