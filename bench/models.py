"""Models of transformers and torchvision, small enough for a CPU, with their usual settings: what tn.patch is tested
and measured on. They are built in code, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Batch = dict[str, Tensor]
VOCABULARY, TOKENS, CLASSES = 211, 12, 10
_DECODER = {
    "hidden_size": 32,
    "intermediate_size": 72,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_PLAIN = {k: v for k, v in _DECODER.items() if k != "num_key_value_heads"}
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def _of(config: str, model: str, **settings: Any) -> Callable[[], nn.Module]:
    """A model of transformers."""

    def build() -> nn.Module:
        import transformers

        made: nn.Module = getattr(transformers, model)(getattr(transformers, config)(**settings))
        return made

    return build


def _resnet() -> nn.Module:
    """A ResNet's first half, with a block for each size."""
    from torchvision.models.resnet import BasicBlock, ResNet

    body = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=CLASSES)
    body.layer3, body.layer4, body.fc = nn.Identity(), nn.Identity(), nn.Linear(128, CLASSES)
    return _Classifier(body)


def _convnext() -> nn.Module:
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    stages = [CNBlockConfig(16, 24, 1), CNBlockConfig(24, 32, 1), CNBlockConfig(32, None, 1)]
    return _Classifier(ConvNeXt(stages, num_classes=CLASSES, layer_scale=0.1))


class _Classifier(nn.Module):
    """Images and labels to a loss, as transformers' models do it."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.loss = nn.CrossEntropyLoss()

    def forward(self, pixel_values: Tensor, labels: Tensor) -> Any:
        logits = self.body(pixel_values)
        return {"loss": self.loss(logits, labels), "logits": logits}


def tokens(generator: torch.Generator) -> Batch:
    """Rows that count up, so that there is something to learn."""
    first = torch.randint(3, VOCABULARY, (4, 1), generator=generator)
    ids = 3 + (first + torch.arange(TOKENS)) % (VOCABULARY - 3)
    return {"input_ids": ids, "labels": ids.clone()}


def images(size: int) -> Callable[[torch.Generator], Batch]:
    """Images whose brightness says what they are."""

    def make(generator: torch.Generator) -> Batch:
        labels = torch.randint(CLASSES, (4,), generator=generator)
        noise = torch.randn(4, 3, size, size, generator=generator)
        return {"pixel_values": noise + labels.view(-1, 1, 1, 1) / CLASSES, "labels": labels}

    return make


@dataclass(frozen=True)
class Family:
    build: Callable[[], nn.Module]
    batch: Callable[[torch.Generator], Batch] = tokens
    replaced: tuple[str, ...] = ()  # operators that have to be in the report


_NORM = ("rms_norm", "rope", "cross_entropy", "embedding")
_ATTENTION = "linear layers of one input"
FAMILIES = {
    "llama": Family(_of("LlamaConfig", "LlamaForCausalLM", **_DECODER), replaced=(_ATTENTION, *_NORM, "swiglu")),
    "qwen2": Family(_of("Qwen2Config", "Qwen2ForCausalLM", **_DECODER), replaced=(_ATTENTION, *_NORM, "swiglu")),
    "qwen3": Family(
        _of("Qwen3Config", "Qwen3ForCausalLM", **_DECODER, head_dim=8), replaced=(_ATTENTION, *_NORM, "swiglu")
    ),
    "mistral": Family(_of("MistralConfig", "MistralForCausalLM", **_DECODER), replaced=(_ATTENTION, *_NORM, "swiglu")),
    "gemma": Family(
        _of("GemmaConfig", "GemmaForCausalLM", **_DECODER, head_dim=8), replaced=(_ATTENTION, *_NORM, "gelu_tanh(gate)")
    ),
    "phi": Family(
        _of("PhiConfig", "PhiForCausalLM", **_DECODER),
        replaced=(_ATTENTION, "layer_norm", "rope", "gelu_tanh", "cross_entropy"),
    ),
    "phi3": Family(_of("Phi3Config", "Phi3ForCausalLM", **_DECODER), replaced=(*_NORM, "swiglu")),
    "mixtral": Family(
        _of("MixtralConfig", "MixtralForCausalLM", **_DECODER, num_local_experts=4, num_experts_per_tok=2),
        replaced=(_ATTENTION, *_NORM, "silu", "softmax"),
    ),
    "gpt2": Family(
        _of(
            "GPT2Config",
            "GPT2LMHeadModel",
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=64,
            vocab_size=VOCABULARY,
            bos_token_id=1,
            eos_token_id=2,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        ),
        replaced=("layer_norm", "gelu_tanh", "cross_entropy", "embedding"),
    ),
    "bert": Family(
        _of("BertConfig", "BertForMaskedLM", **_PLAIN, **_NO_DROPOUT),
        replaced=(_ATTENTION, "add_layer_norm", "gelu", "cross_entropy", "embedding"),
    ),
    "vit": Family(
        _of(
            "ViTConfig",
            "ViTForImageClassification",
            hidden_size=32,
            intermediate_size=72,
            num_hidden_layers=2,
            num_attention_heads=4,
            image_size=16,
            patch_size=4,
            num_labels=CLASSES,
            **_NO_DROPOUT,
        ),
        images(16),
        replaced=(_ATTENTION, "layer_norm", "gelu"),
    ),
    "resnet": Family(_resnet, images(32), replaced=("batch_norm", "cross_entropy")),
    "convnext": Family(_convnext, images(32), replaced=("layer_norm of channels", "layer_norm", "gelu")),
}
