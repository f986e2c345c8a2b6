"""hf: a language model of Hugging Face transformers by its configuration, on synthetic tokens."""

from __future__ import annotations

import hashlib
import importlib.util
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, final

import torch
from torch import Tensor, nn

from parbench.api import Job, Workload
from parbench.errors import MissingError, UsageError
from parbench.workloads import _data, _loss
from parbench.workloads._optimizer import adamw
from parbench.workloads._sizes import settings_of

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_MISSING = "hf needs Hugging Face transformers, which is not installed here; pip install 'parbench[hf]'"


@final
class Hf(Workload):
    """A causal language model as transformers builds it, without dropout; one block, which replicas and fsdp spread."""

    unit: ClassVar[str] = "tokens"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "smoke": {"context": 16},
        "small": {"context": 64},
        "full": {"context": 512},
    }
    source: ClassVar[str] = (
        "tokens and weights generated from the seed; the causal language model of transformers (Wolf et al. 2020) that "
        "a configuration describes; sizes are lengths of samples"
    )

    def __init__(self, config: str, download: bool = False) -> None:
        """Remember which model it is.

        Args:
            config: a folder with a config.json, a type of model such as "gpt2" or "llama", which is then as its
                paper's, or a name on the hub.
            download: whether the configuration of a name may be fetched from the hub. Weights never are.
        """
        self._config = config
        self._download = download

    def unsupported(self) -> str | None:
        """Say that transformers is missing, where it is."""
        return None if importlib.util.find_spec("transformers") else _MISSING

    def data_hash(self) -> str | None:
        """Return the SHA-256 of the configuration's file, where it is one: it decides the model."""
        path = Path(self._config)
        file = path / "config.json" if path.is_dir() else path
        return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None

    def default_batch_size(self, size: str) -> int:
        """Return 8."""
        settings_of("hf", self.sizes, size)
        return 8

    def build(self, size: str, seed: int, device: torch.device, global_batch_size: int) -> Job:
        """Build the model and its stream of synthetic batches.

        Raises:
            UsageError: no such size or configuration, or a batch without samples.
            MissingError: transformers is not installed.
        """
        context = settings_of("hf", self.sizes, size)["context"]
        if (why := self.unsupported()) is not None:
            raise MissingError(why)
        config = without_dropout(configuration(self._config, download=self._download))
        return Job(
            model=_model(config, seed, device),
            loss=_loss.sum_loss,
            optimizer=adamw,
            batch=_data.skewed_tokens(context, config.vocab_size, global_batch_size, seed),
            unit=self.unit,
            units_per_sample=context,
            blocks=["whole"],
        )


def configuration(named: str, *, download: bool) -> PretrainedConfig:
    """Return the configuration that a path, a type of model or a name means.

    Raises:
        UsageError: there is none, or it would have to be downloaded.
    """
    from transformers import CONFIG_MAPPING, AutoConfig

    if not Path(named).exists() and named in CONFIG_MAPPING:
        return AutoConfig.for_model(named)
    try:
        return AutoConfig.from_pretrained(named, local_files_only=not download, trust_remote_code=False)
    except (OSError, ValueError) as error:
        why = str(error).partition("\n")[0][:200]
        raise UsageError(
            f"no configuration is found for {named!r} ({why}); give a folder with a config.json, a type of model such "
            "as gpt2, or a name with download=True"
        ) from error


def without_dropout(config: PretrainedConfig) -> PretrainedConfig:
    """Set every dropout of a configuration to zero: ranks would draw other masks than one process does."""
    for name, value in config.to_dict().items():
        if isinstance(value, float) and ("dropout" in name or "pdrop" in name):
            setattr(config, name, 0.0)
    return config


def _model(config: PretrainedConfig, seed: int, device: torch.device) -> nn.Sequential:
    from transformers import AutoModelForCausalLM

    where = "meta" if device.type == "meta" else "cpu"
    # Its layers initialise themselves: from the seed, and the global random state stays as it was.
    with torch.random.fork_rng(devices=[]), torch.device(where):
        torch.manual_seed(seed)
        made: nn.Module = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    return nn.Sequential(OrderedDict(whole=_Logits(made.to(device))))


@final
class _Logits(nn.Module):
    """tokens_BT -> logits_BTV."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Return the logits alone of what transformers gives."""
        samples, positions = tokens_BT.shape
        # A whole mask is taken as it is; one that transformers makes looks at values, which shapes alone have not.
        seen_TT = torch.ones(positions, positions, dtype=torch.bool, device=tokens_BT.device).tril()
        # Its models cannot take a share without samples: they get one, of which nothing is given on.
        given_BT = tokens_BT if samples else tokens_BT.new_zeros(1, positions)
        mask = seen_TT.expand(given_BT.shape[0], 1, -1, -1)
        logits: Tensor = self.model(input_ids=given_BT, attention_mask=mask, use_cache=False).logits
        return logits[:samples]
