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
    /// Before the name of a project, and before that of each of its files, by models that were trained to read others.
    files: Option<(&'static str, &'static str)>,
}

/// The texts around a gap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InfillTexts {
    /// The text before it.
    pub before: String,
    /// The text after it.
    pub after: String,
    /// Other texts that the model reads first, such as files of the same project.
    pub files: Vec<InfillFile>,
}

/// A text that a model reads before those around a gap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InfillFile {
    /// Its name.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// The tokens of a prompt whose answer fills a gap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InfillPrompt {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// Whether a text was cut to make room.
    pub is_cut: bool,
}

/// The formats. Those with marks that others have too come later.
const FORMATS: &[InfillFormat] = &[
    // Qwen, CodeGemma, Granite
    InfillFormat {
        files: Some(("<|repo_name|>", "<|file_sep|>")),
        ..row("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
    },
    // StarCoder, Granite Code, Stable Code
    InfillFormat {
        files: Some(("<repo_name>", "<file_sep>")),
        ..row("<fim_prefix>", "<fim_suffix>", "<fim_middle>")
    },
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
    InfillFormat { gap: None, after_first: true, ..row("[PREFIX]", "[SUFFIX]", "") },
];

const fn row(before: &'static str, after: &'static str, gap: &'static str) -> InfillFormat {
    InfillFormat { before, after, gap: Some(gap), after_first: false, files: None }
}

/// The names of the project and of the file with the gap, which requests do not say.
const PROJECT: &str = "project";
const CURRENT_FILE: &str = "current";

impl InfillFormat {
    /// The format whose marks a vocabulary has, if the model can fill gaps.
    pub fn for_tokenizer(tokenizer: &Tokenizer) -> Option<InfillFormat> {
        let has = |mark: &str| tokenizer.id(mark).is_some();
        let format = FORMATS
            .iter()
            .copied()
            .find(|format| [format.before, format.after].into_iter().chain(format.gap).all(has))?;
        Some(InfillFormat {
            files: format.files.filter(|(project, file)| has(project) && has(file)),
            ..format
        })
    }

    /// A prompt of at most `room` tokens whose answer fills the gap between two texts. Marks in the texts are text. If they
    /// do not fit, the files lose their start, then the text before the gap its start and the text after it its end; of
    /// these two, the text after the gap keeps a quarter of the room, or more if the other leaves it.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn prompt(
        &self,
        tokenizer: &Tokenizer,
        texts: &InfillTexts,
        room: usize,
    ) -> Result<InfillPrompt, Error> {
        let encode = |text: &str| tokenizer.encode(text, AddSpecial::No, ParseSpecial::No);
        let starts = tokenizer.encode("", AddSpecial::Yes, ParseSpecial::No)?;
        let mut tokens: Vec<u32> = starts.into_iter().filter(|&id| Some(id) == tokenizer.bos()).collect();
        let files = self.files(tokenizer, &texts.files)?;
        let (before, after) = (encode(&texts.before)?, encode(&texts.after)?);

        let marks = tokens.len() + 2 + usize::from(self.gap.is_some());
        let room = room.saturating_sub(marks);
        let kept_after = after.len().min((room / 4).max(room.saturating_sub(before.len())));
        let kept_before = before.len().min(room - kept_after);
        let kept_files = files.len().min(room - kept_after - kept_before);
        let is_cut = kept_after < after.len() || kept_before < before.len() || kept_files < files.len();

        let before = (self.before, &before[before.len() - kept_before..]);
        let after = (self.after, &after[..kept_after]);
        tokens.extend(&files[files.len() - kept_files..]);
        for (mark, text) in if self.after_first { [after, before] } else { [before, after] } {
            tokens.extend(tokenizer.id(mark));
            tokens.extend(text);
        }
        tokens.extend(self.gap.and_then(|mark| tokenizer.id(mark)));
        Ok(InfillPrompt { tokens, is_cut })
    }

    /// The tokens of the files, and what names the file that follows them.
    fn files(&self, tokenizer: &Tokenizer, files: &[InfillFile]) -> Result<Vec<u32>, Error> {
        let encode = |text: &str| tokenizer.encode(text, AddSpecial::No, ParseSpecial::No);
        let mut tokens = Vec::new();
        if files.is_empty() {
            return Ok(tokens);
        }
        let Some((project, file)) = self.files else {
            for InfillFile { name, text } in files {
                tokens.extend(encode(&format!("{name}\n{text}\n\n"))?);
            }
            return Ok(tokens);
        };
        tokens.extend(tokenizer.id(project));
        tokens.extend(encode(&format!("{PROJECT}\n"))?);
        let files = files.iter().map(|InfillFile { name, text }| (&name[..], &text[..]));
        for (name, text) in files.chain([(CURRENT_FILE, "")]) {
            tokens.extend(tokenizer.id(file));
            tokens.extend(encode(&format!("{name}\n{text}"))?);
        }
        Ok(tokens)
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
        let prompt = InfillFormat::for_tokenizer(&tokenizer).map(|format| {
            let texts = InfillTexts { before: "a".into(), after: "b</s>".into(), files: Vec::new() };
            let prompt = format.prompt(&tokenizer, &texts, usize::MAX).unwrap();
            assert!(!prompt.is_cut);
            print(&tokenizer, &prompt.tokens)
        });
        let expected = expected.map(|text| text.replace("{a}", "▁a").replace("{b}", "▁b</s>"));
        assert_eq!(prompt, expected, "{marks:?}");
    }

    /// The text of marks and bytes. SentencePiece writes a space before a text.
    fn print(tokenizer: &Tokenizer, tokens: &[u32]) -> String {
        let mut bytes = Vec::new();
        for &id in tokens {
            let name = tokenizer.token(id).unwrap();
            match name
                .strip_prefix("<0x")
                .and_then(|byte| u8::from_str_radix(byte.trim_end_matches('>'), 16).ok())
            {
                Some(byte) => bytes.push(byte),
                None => bytes.extend_from_slice(name.as_bytes()),
            }
        }
        String::from_utf8(bytes).unwrap()
    }

    fn texts() -> InfillTexts {
        let file = |name: &str, text: &str| InfillFile { name: name.into(), text: text.into() };
        InfillTexts {
            before: "0123456789".into(),
            after: "abcdefghij".into(),
            files: vec![file("x.h", "int x;"), file("y.h", "int y;")],
        }
    }

    #[test]
    fn files_come_first_with_marks_if_the_vocabulary_has_them() {
        let fim = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"];
        let prompt = |marks: &[&str]| {
            let tokenizer = tokenizer(marks);
            let format = InfillFormat::for_tokenizer(&tokenizer).unwrap();
            print(&tokenizer, &format.prompt(&tokenizer, &texts(), usize::MAX).unwrap().tokens)
        };
        let gap = "<|fim_prefix|>▁0123456789<|fim_suffix|>▁abcdefghij<|fim_middle|>";
        let marks = [&fim[..], &["<|repo_name|>", "<|file_sep|>"]].concat();
        let files = "<s><|repo_name|>▁project\n<|file_sep|>▁x.h\nint▁x;<|file_sep|>▁y.h\nint▁y;<|file_sep|>▁current\n";
        assert_eq!(prompt(&marks), format!("{files}{gap}"));
        assert_eq!(prompt(&fim), format!("<s>▁x.h\nint▁x;\n\n▁y.h\nint▁y;\n\n{gap}"));
    }

    #[test]
    fn texts_beyond_the_room_are_cut_far_from_the_gap() {
        let tokenizer = tokenizer(&["<PRE>", "<SUF>", "<MID>"]);
        let format = InfillFormat::for_tokenizer(&tokenizer).unwrap();
        let check = |before: &str, room: usize, expected: &str, is_cut: bool| {
            let texts = InfillTexts { before: before.into(), ..texts() };
            let prompt = format.prompt(&tokenizer, &texts, room).unwrap();
            assert_eq!((print(&tokenizer, &prompt.tokens), prompt.is_cut), (expected.to_string(), is_cut));
            assert!(prompt.tokens.len() <= room.max(4), "{room}");
        };
        // Four marks; `▁` is three bytes, each of them a token.
        check("0123456789", 4 + 26 + 4, "<s>y;\n\n<PRE>▁0123456789<SUF>▁abcdefghij<MID>", true);
        check("0123456789", 4 + 20, "<s><PRE>▁0123456789<SUF>▁abcd<MID>", true);
        check("0123456789", 4 + 12, "<s><PRE>123456789<SUF>▁<MID>", true);
        check("0", 4 + 12, "<s><PRE>▁0<SUF>▁abcde<MID>", true);
        check("0123456789", 0, "<s><PRE><SUF><MID>", true);
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
