"""Frameworks on top of the clients: LangChain, LlamaIndex and LiteLLM."""

import asyncio
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # LiteLLM would fetch a list of prices.

import litellm
import pytest
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from llama_index.core import Document, VectorStoreIndex
from llama_index.core.llms import ChatMessage
from llama_index.embeddings.openai import OpenAIEmbedding
from llama_index.llms.openai_like import OpenAILike

OPTIONS = {"max_tokens": 12, "seed": 1, "temperature": 0.0}


@pytest.fixture
def langchain(base_url):
    return ChatOpenAI(model="storyteller", base_url=base_url, api_key="none", **OPTIONS)


@pytest.fixture
def llama_index(base_url):
    return OpenAILike(model="storyteller", api_base=base_url, api_key="none", is_chat_model=True, max_tokens=12, temperature=0.0)


def completion(base_url, **options):
    messages = [{"role": "user", "content": "Once upon a time"}]
    return litellm.completion(
        model="openai/storyteller", api_base=base_url, api_key="none", messages=messages, **OPTIONS | options
    )


def test_langchain_invokes_streams_and_batches(langchain):
    whole = langchain.invoke("Once upon a time")
    assert whole.content and whole.usage_metadata["output_tokens"] == 12
    assert "".join(chunk.content for chunk in langchain.stream("Once upon a time")) == whole.content
    assert [answer.content for answer in langchain.batch(["Once upon a time"] * 3)] == [whole.content] * 3


def test_langchain_chains_and_runs_async(langchain):
    chain = ChatPromptTemplate.from_template("Once upon a {what}") | langchain | StrOutputParser()
    assert chain.invoke({"what": "time"}) == asyncio.run(chain.ainvoke({"what": "time"})) != ""


def test_langchain_counts_tokens_of_a_stream(langchain):
    last = None
    for chunk in langchain.stream("Once upon a time", stream_usage=True):
        last = chunk if last is None else last + chunk
    assert last.usage_metadata["output_tokens"] == 12


def test_langchain_completes_texts(base_url):
    llm = OpenAI(model="storyteller", base_url=base_url, api_key="none", max_tokens=8, temperature=0)
    assert llm.invoke("Once upon a time")


def test_langchain_embeds(base_url, encoder):
    embeddings = OpenAIEmbeddings(model=encoder, base_url=base_url, api_key="none", check_embedding_ctx_length=False)
    assert len(embeddings.embed_query("a cat")) == 384
    assert len(embeddings.embed_documents(["a", "b", "c"])) == 3


def test_llama_index_chats_and_streams(llama_index):
    message = ChatMessage(role="user", content="Once upon a time")
    whole = llama_index.chat([message]).message.content
    assert whole and "".join(part.delta for part in llama_index.stream_chat([message])) == whole
    assert asyncio.run(llama_index.achat([message])).message.content == whole


def test_llama_index_retrieves(base_url, encoder, llama_index):
    embedding = OpenAIEmbedding(model_name=encoder, api_base=base_url, api_key="none")
    texts = ["Paris is the capital of France.", "Whales are mammals.", "Bread is made of flour."]
    index = VectorStoreIndex.from_documents([Document(text=text) for text in texts], embed_model=embedding)
    best = index.as_retriever(similarity_top_k=1).retrieve("Which animal lives in the sea?")
    assert best[0].text == texts[1]


def test_litellm_completes_and_streams(base_url):
    whole = completion(base_url)
    assert whole.usage.completion_tokens == 12
    parts = (chunk.choices[0].delta.content or "" for chunk in completion(base_url, stream=True))
    assert "".join(parts) == whole.choices[0].message.content


def test_litellm_runs_async_and_embeds(base_url, encoder):
    messages = [{"role": "user", "content": "Once"}]
    answer = asyncio.run(
        litellm.acompletion(model="openai/storyteller", api_base=base_url, api_key="none", messages=messages, **OPTIONS)
    )
    assert answer.choices[0].message.content
    vectors = litellm.embedding(model=f"openai/{encoder}", api_base=base_url, api_key="none", input=["a", "b"])
    assert len(vectors.data) == 2


def test_litellm_completes_streams_and_embeds_over_the_routes_of_ollama(server, encoder):
    messages = [{"role": "user", "content": "Once upon a time"}]
    for route in ["ollama", "ollama_chat"]:
        own = dict(model=f"{route}/storyteller", api_base=server, messages=messages, **OPTIONS)
        whole = litellm.completion(**own)
        assert whole.usage.completion_tokens == 12
        parts = (chunk.choices[0].delta.content or "" for chunk in litellm.completion(stream=True, **own))
        assert "".join(parts) == whole.choices[0].message.content
    vectors = litellm.embedding(model=f"ollama/{encoder}", api_base=server, input=["a", "word " * 2000])
    assert len(vectors.data) == 2


def test_litellm_maps_errors(base_url):
    with pytest.raises(litellm.ContextWindowExceededError):
        litellm.completion(
            model="openai/storyteller", api_base=base_url, api_key="none", messages=[{"role": "user", "content": "word " * 9999}]
        )
    with pytest.raises(litellm.BadRequestError):
        completion(base_url, top_p=7)
