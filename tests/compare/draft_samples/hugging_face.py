"""Small models of `transformers`, which `graphmode draft` reads from the package."""

from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MBartConfig,
    MBartModel,
    MistralConfig,
    MistralModel,
    ResNetConfig,
    ResNetModel,
    ViTConfig,
    ViTModel,
)

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
EAGER = {"attn_implementation": "eager"}


def llama():
    return LlamaForCausalLM(LlamaConfig(vocab_size=50, num_key_value_heads=2, use_cache=False, **SIZES, **EAGER))


def bert():
    rates = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
    return BertModel(BertConfig(vocab_size=50, max_position_embeddings=16, **rates, **SIZES, **EAGER))


def gpt2():
    rates = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "use_cache": False}
    sizes = {"vocab_size": 50, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4}
    return GPT2LMHeadModel(GPT2Config(bos_token_id=0, eos_token_id=0, **sizes, **rates, **EAGER))


def vit():
    return ViTModel(ViTConfig(image_size=32, patch_size=8, **SIZES, **EAGER))


def mistral():
    sizes = {"vocab_size": 50, "num_key_value_heads": 2, "sliding_window": 4, "use_cache": False}
    return MistralModel(MistralConfig(**sizes, **SIZES, **EAGER))


def resnet():
    return ResNetModel(ResNetConfig(embedding_size=4, hidden_sizes=[4, 6], depths=[1, 1], layer_type="basic"))


def mbart():
    """Whose base class ties the embeddings of both halves."""
    rates = {"attention_dropout": 0.0, "activation_dropout": 0.0, "dropout": 0.0, "use_cache": False}
    layers = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    sizes = {"vocab_size": 50, "d_model": 16, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
    return MBartModel(MBartConfig(max_position_embeddings=16, **sizes, **layers, **rates, **EAGER))


def llama_with_yarn():
    """Whose frequencies a function of another file computes, by its name in a dictionary there."""
    rotary = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 8}
    sizes = {"vocab_size": 50, "num_key_value_heads": 2, "max_position_embeddings": 32, "use_cache": False}
    return LlamaForCausalLM(LlamaConfig(rope_parameters=rotary, **sizes, **SIZES, **EAGER))
