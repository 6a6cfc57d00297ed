//! Prompts that have a model fill the gap between two texts.

use crate::{AddSpecial, Error, ParseSpecial, Tokenizer};

/// The marks of the vocabulary by which a model reads the two texts around a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InfillFormat {
    /// Before the text that comes before the gap.
    before: &'static str,
    /// Before the text that comes after the gap.
    after: &'static str,
    /// Where the model fills the gap.
    gap: Option<&'static str>,
    /// Whether the text after the gap is read first.
    after_first: bool,
}

/// The formats. Those with marks that others have too come later.
const FORMATS: &[InfillFormat] = &[
    // Qwen, CodeGemma, Granite
    row("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    // StarCoder, Granite Code, Stable Code
    row("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    // SantaCoder, Refact
    row("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    // LFM2
    row("<|fim_pre|>", "<|fim_suf|>", "<|fim_mid|>"),
    // DeepSeek
    row("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    // GLM
    row("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),
    // Code Llama
    row("▁<PRE>", "▁<SUF>", "▁<MID>"),
    row("<PRE>", "<SUF>", "<MID>"),
    // Seed-Coder
    InfillFormat { after_first: true, ..row("<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>") },
    // Codestral
    InfillFormat { before: "[PREFIX]", after: "[SUFFIX]", gap: None, after_first: true },
];

const fn row(before: &'static str, after: &'static str, gap: &'static str) -> InfillFormat {
    InfillFormat { before, after, gap: Some(gap), after_first: false }
}

impl InfillFormat {
    /// The format whose marks a vocabulary has, if the model can fill gaps.
    pub fn of(tokenizer: &Tokenizer) -> Option<InfillFormat> {
        let has = |mark: &str| tokenizer.id(mark).is_some();
        FORMATS
            .iter()
            .copied()
            .find(|format| [format.before, format.after].into_iter().chain(format.gap).all(has))
    }

    /// The tokens of a prompt whose answer fills the gap between `before` and `after`. Marks in these texts are text.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn prompt(&self, tokenizer: &Tokenizer, before: &str, after: &str) -> Result<Vec<u32>, Error> {
        let mut parts = [(self.before, before), (self.after, after)];
        if self.after_first {
            parts.reverse();
        }
        let starts = tokenizer.encode("", AddSpecial::Yes, ParseSpecial::No)?;
        let mut ids: Vec<u32> = starts.into_iter().filter(|&id| Some(id) == tokenizer.bos()).collect();
        for (mark, text) in parts {
            ids.extend(tokenizer.id(mark));
            ids.extend(tokenizer.encode(text, AddSpecial::No, ParseSpecial::No)?);
        }
        ids.extend(self.gap.and_then(|mark| tokenizer.id(mark)));
        Ok(ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::GgufVocabulary;

    /// A vocabulary of bytes and these marks, which begins texts with its first token.
    fn tokenizer(marks: &[&str]) -> Tokenizer {
        let names = ["<unk>", "<s>", "</s>"].iter().chain(marks).map(|&name| name.to_owned());
        let types = [2, 3, 3].into_iter().chain(marks.iter().map(|_| 3)).chain([6; 256]);
        let vocabulary = GgufVocabulary {
            model: "llama",
            token_types: Some(types.collect()),
            tokens: names.chain((0..=255).map(|byte| format!("<0x{byte:02X}>"))).map(Into::into).collect(),
            bos: Some(1),
            eos: Some(2),
            ..Default::default()
        };
        Tokenizer::from_gguf_vocabulary(&vocabulary).unwrap()
    }

    /// The prompt of a gap between `a` and `b</s>`, written out.
    fn check(marks: &[&str], expected: Option<&str>) {
        let tokenizer = tokenizer(marks);
        let prompt = InfillFormat::of(&tokenizer).map(|format| {
            let ids = format.prompt(&tokenizer, "a", "b</s>").unwrap();
            let name = |&id: &u32| tokenizer.token(id).unwrap().into_owned();
            ids.iter().map(name).collect::<String>()
        });
        let bytes = |text: &str| text.bytes().map(|byte| format!("<0x{byte:02X}>")).collect::<String>();
        // SentencePiece writes a space before a text.
        let (before, after) = (bytes("\u{2581}a"), bytes("\u{2581}b</s>"));
        let expected = expected.map(|text| text.replace("{a}", &before).replace("{b}", &after));
        assert_eq!(prompt, expected, "{marks:?}");
    }

    #[test]
    fn gaps_are_written_with_the_marks_of_the_vocabulary() {
        check(
            &["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"],
            Some("<s><|fim_prefix|>{a}<|fim_suffix|>{b}<|fim_middle|>"),
        );
        check(&["<MID>", "<SUF>", "<PRE>"], Some("<s><PRE>{a}<SUF>{b}<MID>"));
        check(&["[SUFFIX]", "[PREFIX]"], Some("<s>[SUFFIX]{b}[PREFIX]{a}"));
        let seed = ["<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>"];
        check(&seed, Some("<s><[fim-suffix]>{b}<[fim-prefix]>{a}<[fim-middle]>"));
    }

    #[test]
    fn a_vocabulary_without_all_marks_has_no_format() {
        check(&[], None);
        check(&["<|fim_prefix|>", "<|fim_suffix|>"], None);
        check(&["[SUFFIX]"], None);
    }
}
