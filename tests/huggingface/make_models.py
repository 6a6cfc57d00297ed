"""Writes tiny models with random weights into a folder, and what Transformers itself answers: make_models.py FOLDER.

Each model is a folder. `expected.json` has what Transformers computes: the greedy continuation of `PROMPT` as tokens and
text for models that write, and the mean of the hidden states of `PROMPT` for the embedder.
"""

import json
import pathlib
import sys

import torch
import transformers

PROMPT = "Once upon"
TOKENS = 12
CHARACTERS = ["<unk>", "<s>", "</s>", *map(chr, range(32, 127))]
COMMON = {
    "vocab_size": len(CHARACTERS),
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "hidden_size": 32,
    # Else each token is followed by itself.
    "tie_word_embeddings": False,
}

# A model that Transformers does not have: each token sees the mean of all before it.
CODE = '''
import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput


class MeanConfig(PretrainedConfig):
    model_type = "mean"

    def __init__(self, vocab_size=98, hidden_size=32, **more):
        self.vocab_size, self.hidden_size = vocab_size, hidden_size
        super().__init__(**more)


class MeanForCausalLM(PreTrainedModel):
    config_class = MeanConfig

    def __init__(self, config):
        super().__init__(config)
        self.embed = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.head = torch.nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def forward(self, input_ids, **ignored):
        states = self.embed(input_ids)
        counts = torch.arange(1, states.shape[1] + 1).view(1, -1, 1)
        return CausalLMOutput(logits=self.head(states.cumsum(1) / counts + states))
'''

# A tokenizer that only code can read.
TOKENIZER_CODE = f'''
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

CHARACTERS = {CHARACTERS!r}


def make():
    vocabulary = {{text: index for index, text in enumerate(CHARACTERS)}}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(CHARACTERS[:3])
    return tokenizer


class CodeTokenizer(PreTrainedTokenizerFast):
    def __init__(self, **more):
        more.pop("tokenizer_object", None)
        super().__init__(tokenizer_object=make(), **more)
'''


def write_tokenizer(folder):
    code = {}
    exec(TOKENIZER_CODE, code)
    code["make"]().save(str(folder / "tokenizer.json"))
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(special))


def random_model(make, config, deviation=0.3):
    torch.manual_seed(1)
    model = make(config)
    for weight in model.parameters():
        # Larger than models begin with, so that answers are no single character.
        torch.nn.init.normal_(weight, std=deviation)
    return model.eval()


def continuation(model, ids):
    """Greedy tokens, without a cache."""
    for _ in range(TOKENS):
        ids = [*ids, int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax())]
    return ids[-TOKENS:]


def main(root):
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 128}
    heads = {**sizes, "num_key_value_heads": 2, "intermediate_size": 64}
    opt = {**sizes, "ffn_dim": 64, "word_embed_proj_dim": 32}
    albert = {**sizes, "embedding_size": 16, "intermediate_size": 64}
    causal = transformers.AutoModelForCausalLM.from_config
    made = {
        "opt": random_model(causal, transformers.OPTConfig(**COMMON, **opt), 1.0),
        "bloom": random_model(causal, transformers.BloomConfig(**COMMON, n_layer=2, n_head=4)),
        "llama": random_model(causal, transformers.LlamaConfig(**COMMON, **heads)),
        "albert": random_model(transformers.AlbertModel, transformers.AlbertConfig(**COMMON, **albert)),
    }
    code = {}
    exec(CODE, code)
    made["mean"] = random_model(code["MeanForCausalLM"], code["MeanConfig"](**COMMON, max_position_embeddings=128))
    ids, expected = [CHARACTERS.index(character) for character in PROMPT], {}
    for name, model in made.items():
        folder = root / name
        model.save_pretrained(folder)
        write_tokenizer(folder)
        # What it recommends is not what these tests are about.
        (folder / "generation_config.json").unlink(missing_ok=True)
        with torch.inference_mode():
            if name == "albert":
                states = model(input_ids=torch.tensor([ids])).last_hidden_state
                expected[name] = torch.nn.functional.normalize(states[0].mean(0), dim=0).tolist()
            else:
                tokens = continuation(model, ids)
                text = "".join(CHARACTERS[token] for token in tokens if token > 2)
                expected[name] = {"tokens": tokens, "text": text}
    folder = root / "mean"
    (folder / "modeling_mean.py").write_text(CODE)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenization_code.py").write_text(TOKENIZER_CODE)
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    classes = {"AutoTokenizer": [None, "tokenization_code.CodeTokenizer"]}
    tokenizer |= {"tokenizer_class": "CodeTokenizer", "auto_map": classes}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {
        "AutoConfig": "modeling_mean.MeanConfig",
        "AutoModelForCausalLM": "modeling_mean.MeanForCausalLM",
    }
    (folder / "config.json").write_text(json.dumps(config))
    (root / "expected.json").write_text(json.dumps(expected))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
