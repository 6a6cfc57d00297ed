//! Tokenizers against the ids that llama.cpp, SentencePiece and `tokenizers` give.
