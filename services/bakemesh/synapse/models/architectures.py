"""The architectures that the engine has, and what they are for.

The names are those of llama.cpp in the version that pyproject.toml pins (src/llama-arch.cpp); a test asks the
engine about each.
"""

from __future__ import annotations

_TEXT = """
afmoe apertus arcee arctic arwkv7 baichuan bailingmoe bailingmoe2 bailingmoe3 bert bitnet bloom chameleon
chatglm codeshell cogvlm cohere2 cohere2moe command-r dbrx deci deepseek deepseek2 deepseek32 deepseek4
dots1 dots3note ernie4_5 ernie4_5-moe eurobert exaone exaone-moe exaone4 falcon falcon-h1 gemma
gemma-embedding gemma2 gemma3 gemma3n gemma4 glm-dsa glm4 glm4moe glm5-next gpt-oss gpt2 gptj gptneox granite
granite_swa granitehybrid granitemoe graniteswitch grok grovemoe hrm_text hunyuan-dense hunyuan-moe hunyuan_vl
hy_v3 hy_v4 internlm2 jais jais2 jamba jina-bert-v2 jina-bert-v3 kimi-k3 kimi-linear laguna lfm2 lfm2moe
llama llama-embed llama4 maincoder mamba mamba2 maple mellum mimo2 minicpm minicpm3 minimax-01 minimax-m2
minimax-m3 mistral3 mistral4 modern-bert mpt muse-glimmer nanbeige nemotron nemotron_h nemotron_h_moe neo-bert
nomic-bert nomic-bert-moe olmo olmo2 olmoe openelm orion paddleocr pangu-embedded phi2 phi3 phimoe plamo
plamo2 plamo3 plm qwen qwen2 qwen2moe qwen2vl qwen3 qwen35 qwen35moe qwen3moe qwen3next qwen3vl qwen3vlmoe
qwen4exp refact rwkv6 rwkv6qwen2 rwkv7 seed_oss smallthinker smollm3 spark2_5 stablelm starcoder starcoder2
step35 talkie xverse
"""
TEXT = frozenset(_TEXT.split())

# Known to the engine, and nothing that a worker can embed, rerank or generate with.
OTHERS = {
    "clip": "the half of a model that sees pictures",
    "deepseek2-ocr": "a model that reads pictures",
    "dflash": "a model that drafts for another one",
    "dream": "a diffusion model",
    "eagle3": "a model that drafts for another one",
    "gemma4-assistant": "a model that drafts for another one",
    "llada": "a diffusion model",
    "llada-moe": "a diffusion model",
    "pockettts": "a model that speaks",
    "qwen3tts": "a model that speaks",
    "rnd1": "a diffusion model",
    "t5": "a model of two halves",
    "t5encoder": "the half of a model of two halves",
    "wavtokenizer-dec": "a model of sounds",
}

# Encoders: they read to both sides, and give no next token.
_ENCODERS = """
bert eurobert gemma-embedding jina-bert-v2 jina-bert-v3 llama-embed modern-bert neo-bert nomic-bert
nomic-bert-moe
"""
ENCODERS = frozenset(_ENCODERS.split())
