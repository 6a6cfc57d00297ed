//! How panels of each dtype are stored, as constants and functions of the shaders.

use tensor::DType;
use tensor::blocks::{iq3_s, iq3_xxs, iq4_nl, mxfp4};

/// How a panel is stored, and so what it is multiplied with.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Layout {
    /// Codes with factors, which multiply int8 codes of the input.
    Blocks { codes: Codes, factors: Factors },
    /// Numbers, which multiply the input as it is.
    Floats(Floats),
}

/// How the codes of 16 rows and 32 columns are stored.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Codes {
    /// The function that reads them.
    function: &'static str,
    /// What codes, as that function gives them, are larger than the codes meant.
    zero_point: i32,
    words: usize,
    /// What nibbles stand for.
    levels: Option<[i8; 16]>,
}

/// How scales and minimums of a block are stored.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Factors {
    /// The function that reads them.
    function: &'static str,
    /// Columns of a block.
    columns: usize,
    /// Groups in 32 columns.
    groups: usize,
    minimums: bool,
    words: usize,
}

/// How numbers are stored.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Floats {
    /// The function that reads those of two columns.
    function: &'static str,
    /// Columns that are brought to the memory of a workgroup at a time, and their words.
    columns: usize,
    words: usize,
    /// Whether these words begin with a scale a row.
    scaled: bool,
    /// Words of the table that a panel begins with.
    head: usize,
}

/// Lists the levels of `iq1`, `iq2` and `tq`, as the host's panels do.
const COARSE_LEVELS: [i8; 16] = [-43, -25, -9, -8, -7, -1, 0, 1, 2, 7, 8, 9, 25, 43, 0, 0];

/// What weights without a table start with.
const NO_TABLE: &str = "fn start_stage(panel: u32, thread: u32) {}\n";

/// The layout of a dtype's panels.
pub(in super::super) fn layout(dtype: DType) -> Option<Layout> {
    let halves = factors("halves", 32, 1, 8);
    let eighths = factors("eighth_multiples", 256, 2, 72);
    let least = |function, columns, groups, words| Factors {
        minimums: true,
        ..factors(function, columns, groups, words)
    };
    let multiples = |groups: usize| factors("multiples", 256, groups, 8 + 32 * groups);
    let both = |groups: usize| least("multiples_and_minimums", 256, groups, 16 + 64 * groups);
    let blocks = |codes, factors| Some(Layout::Blocks { codes, factors });
    let float = |floats| Some(Layout::Floats(floats));
    match packed_as(dtype) {
        DType::Q4_0 => blocks(nibbles(8), halves),
        DType::Q4_1 => blocks(nibbles(0), least("halves_and_minimums", 32, 1, 16)),
        DType::Q5_0 => blocks(five_bits(16), halves),
        DType::Q5_1 => blocks(five_bits(0), least("halves_and_minimums", 32, 1, 16)),
        DType::Q8_0 => blocks(eight_bits(0), halves),
        DType::Q2K => blocks(nibbles(0), both(2)),
        DType::Q3K => blocks(nibbles(4), multiples(2)),
        DType::Q4K => blocks(nibbles(0), both(1)),
        DType::Q5K => blocks(five_bits(0), both(1)),
        DType::Q6K => blocks(codes("six_bits", 32, 96), multiples(2)),
        DType::Iq4Nl => blocks(levels(iq4_nl::LEVELS), halves),
        DType::Iq4Xs => blocks(levels(iq4_nl::LEVELS), multiples(1)),
        DType::Gptq => blocks(nibbles(0), least("halves_and_zeros", 32, 1, 12)),
        DType::Mxfp4 => blocks(levels(mxfp4::LEVELS), factors("exponents", 32, 1, 4)),
        DType::Nvfp4 | DType::GgmlNvfp4 => {
            blocks(levels(mxfp4::LEVELS), factors("float_multiples", 64, 2, 32))
        }
        DType::Gptq8 => blocks(eight_bits(-128), least("singles_and_zeros", 32, 1, 20)),
        DType::Iq1S
        | DType::Iq1M
        | DType::Iq2Xxs
        | DType::Iq2Xs
        | DType::Iq2S
        | DType::Tq1_0
        | DType::Tq2_0 => blocks(levels(COARSE_LEVELS), eighths),
        DType::Iq3Xxs => blocks(levels(signed(iq3_xxs::LEVELS)), eighths),
        DType::Iq3S => blocks(levels(signed(iq3_s::LEVELS)), eighths),
        DType::Fp8 => float(floats("eight_bit_floats", 64, 272, true, 0)),
        DType::Nf4 | DType::Fp4 => float(floats("table_floats", 64, 144, true, 16)),
        DType::F32 => float(floats("singles", 64, 1024, false, 0)),
        DType::F16 => float(floats("halves", 128, 1024, false, 0)),
        DType::BF16 => float(floats("pairs", 128, 1024, false, 0)),
        _ => None,
    }
}

/// The dtype that the host packs another one as.
fn packed_as(dtype: DType) -> DType {
    match dtype {
        DType::F64 => DType::F32,
        dtype if dtype.is_float8() => DType::BF16,
        dtype => dtype,
    }
}

const fn codes(function: &'static str, zero_point: i32, words: usize) -> Codes {
    Codes { function, zero_point, words, levels: None }
}

const fn nibbles(zero_point: i32) -> Codes {
    codes("nibbles", zero_point, 64)
}

const fn five_bits(zero_point: i32) -> Codes {
    codes("five_bits", zero_point, 80)
}

/// Read less 128, so that they are signed.
const fn eight_bits(zero_point: i32) -> Codes {
    codes("eight_bits", zero_point, 128)
}

const fn levels(levels: [i8; 16]) -> Codes {
    Codes { levels: Some(levels), ..codes("level_codes", 0, 64) }
}

const fn factors(function: &'static str, columns: usize, groups: usize, words: usize) -> Factors {
    Factors { function, columns, groups, minimums: false, words }
}

const fn floats(function: &'static str, columns: usize, words: usize, scaled: bool, head: usize) -> Floats {
    Floats { function, columns, words, scaled, head }
}

/// Levels, and then their negatives.
fn signed(levels: [i8; 8]) -> [i8; 16] {
    std::array::from_fn(|i| if i < 8 { levels[i] } else { -levels[i - 8] })
}

/// The constants of a shader, and its text.
pub(super) struct Text {
    pub(super) constants: Vec<(&'static str, String)>,
    pub(super) text: String,
}

impl Text {
    fn constant(&mut self, name: &'static str, value: usize) {
        self.constants.push((name, format!("{value}u")));
    }

    fn put(&mut self, text: &str) {
        self.text.push_str(text);
    }
}

impl Layout {
    /// Whether panels multiply int8 codes of the input.
    pub(super) fn is_blocks(&self) -> bool {
        matches!(self, Layout::Blocks { .. })
    }

    /// The shader that multiplies panels.
    pub(super) fn text(&self) -> Text {
        let floats = match self {
            Layout::Blocks { codes, factors } => return blocks_text(codes, factors),
            Layout::Floats(floats) => floats,
        };
        let mut text = floats.text();
        text.constant("HEAD", floats.head);
        text.put(include_str!("panels.wgsl"));
        text.put("fn in_batch(group: u32) -> u32 { return group; }\n");
        text.put(if floats.head == 0 { NO_TABLE } else { include_str!("table.wgsl") });
        text
    }
}

impl Floats {
    fn text(&self) -> Text {
        let mut text = Text { constants: Vec::new(), text: include_str!("floats.wgsl").to_string() };
        text.constant("COLUMNS", self.columns);
        text.constant("WORDS", self.words);
        text.constants.push(("SCALED", self.scaled.to_string()));
        let function = self.function;
        let pair =
            format!("fn pair(at: u32, i: u32, row: u32) -> vec2<f32> {{ return {function}(at, i, row); }}\n");
        text.put(&pair);
        text
    }
}

/// The shader that multiplies floats as matrices store them, row by row or column by column.
pub(super) fn rows_text(is_transposed: bool) -> Text {
    // As panels of f32 have them, once they are in the memory of a workgroup.
    let mut text = floats("singles", 64, 1024, false, 0).text();
    text.constants.push(("TRANSPOSED", is_transposed.to_string()));
    text.put(include_str!("rows.wgsl"));
    text.put(NO_TABLE);
    text
}

fn blocks_text(codes: &Codes, factors: &Factors) -> Text {
    let mut text = Text { constants: Vec::new(), text: include_str!("blocks.wgsl").to_string() };
    let pieces = factors.columns / 32;
    text.constant("GROUPS", factors.groups);
    text.constant("BLOCK_PIECES", pieces);
    text.constant("BLOCK_WORDS", factors.words + pieces * codes.words);
    text.constant("FACTOR_WORDS", factors.words);
    text.constant("CODE_WORDS", codes.words);
    // What the memory of a workgroup has room for.
    text.constant("SLOTS", if factors.minimums { 48 } else { 64 });
    text.constants.push(("ZERO_POINT", codes.zero_point.to_string()));
    text.constants.push(("MINIMUMS", factors.minimums.to_string()));
    text.put(include_str!("codes.wgsl"));
    text.put(include_str!("factors.wgsl"));
    text.put(if factors.minimums { include_str!("minimums.wgsl") } else { include_str!("scales.wgsl") });
    match codes.levels {
        None => text.put("fn start_levels(thread: u32) {}\n"),
        Some(levels) => {
            let words = levels
                .as_chunks::<4>()
                .0
                .iter()
                .map(|four| u32::from_le_bytes(four.map(|level| level as u8)));
            let words: Vec<String> = words.map(|word| format!("{word}u")).collect();
            text.constants.push(("LEVELS", format!("vec4<u32>({})", words.join(", "))));
            text.put(include_str!("levels.wgsl"));
        }
    }
    let (codes, factors) = (codes.function, factors.function);
    let functions = format!(
        "fn codes(at: u32) -> Codes {{ return {codes}(at); }}\n\
         fn factors(at: u32, row: u32, group: u32) -> vec2<f32> {{ return {factors}(at, row, group); }}\n"
    );
    text.put(&functions);
    text
}
