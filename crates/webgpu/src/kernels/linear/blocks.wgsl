// The products of a panel of quantized weights with up to 8 tokens. 16 threads a row multiply integers of 32 columns each, and
// write them to the memory of the group; then a thread per row and token adds them in the order of the columns.

const TILE = 8u;
const LANES = 16u;
// The most groups of a round, and the most products of a row.
const MOST = 32u;

// Which half of the memory a round writes: the other one may still be read.
var<private> side: u32;

var<workgroup> dots: array<f32, 2 * SLOTS * 16>;
var<workgroup> scales: array<f32, 2 * MOST * 16>;
var<workgroup> x_scales: array<f32, 2 * SLOTS>;

// The sum of the products of 16 columns.
fn multiply(codes: vec4<u32>, at: u32) -> i32 {
    return dot4I8Packed(codes.x, x(at)) + dot4I8Packed(codes.y, x(at + 1u)) + dot4I8Packed(codes.z, x(at + 2u))
        + dot4I8Packed(codes.w, x(at + 3u));
}

// The sum of the codes of 16 columns of the input.
fn sum_of(at: u32, part: u32) -> i32 {
    return bitcast<i32>(x(at + 9u + part));
}

// Multiplies 32 columns of a row with the tokens: the `i`-th of this round.
fn multiply_piece(panel: u32, piece: u32, i: u32, row: u32, side: u32, first: u32, tokens: u32) {
    let block = panel * p.panel_words + piece / BLOCK_PIECES * BLOCK_WORDS;
    let inside = piece % BLOCK_PIECES;
    let both = codes(block + FACTOR_WORDS + inside * CODE_WORDS + row);
    for (var g = 0u; g < GROUPS; g++) {
        put_factors(factors(block, row, GROUPS * inside + g), (side * MOST + i * GROUPS + g) * 16u + row);
    }
    let pieces = p.columns / 32u;
    for (var t = 0u; t < tokens; t++) {
        let at = ((first + t) * pieces + piece) * 11u;
        var low = multiply(both.first, at);
        var high = multiply(both.last, at + 4u);
        if (ZERO_POINT != 0) {
            low -= ZERO_POINT * sum_of(at, 0u);
            high -= ZERO_POINT * sum_of(at, 1u);
        }
        let slot = side * SLOTS + i * GROUPS * tokens + t;
        if (GROUPS == 1u) {
            dots[slot * 16u + row] = f32(low + high);
        } else {
            dots[slot * 16u + row] = f32(low);
            dots[(slot + tokens) * 16u + row] = f32(high);
        }
        if (row == 0u) {
            let scale = bitcast<f32>(x(at + 8u));
            x_scales[side * SLOTS + i * tokens + t] = scale;
            if (MINIMUMS) {
                put_corrections(at, slot, tokens, scale);
            }
        }
    }
}

// Adds the products of a round to the sum of a row and a token.
fn add(before: f32, side: u32, count: u32, tokens: u32, token: u32, row: u32) -> f32 {
    var sum = before;
    for (var i = 0u; i < count; i++) {
        let x_scale = x_scales[side * SLOTS + i * tokens + token];
        for (var g = 0u; g < GROUPS; g++) {
            let group = i * GROUPS + g;
            let slot = side * SLOTS + group * tokens + token;
            let at = (side * MOST + group) * 16u + row;
            sum = fused(dots[slot * 16u + row], scales[at] * x_scale, sum);
            if (MINIMUMS) {
                sum = add_minimum(sum, at, slot);
            }
        }
    }
    return sum;
}

// The sum of the products of a row and a token, of this thread if it adds.
fn product(panel: u32, first: u32, tokens: u32, row: u32, lane: u32) -> f32 {
    let pieces = p.columns / 32u;
    let width = min(MOST / GROUPS, SLOTS / (GROUPS * tokens));
    var sum = 0.0;
    for (var start = 0u; start < pieces; start += width) {
        let count = min(width, pieces - start);
        for (var i = lane; i < count; i += LANES) {
            multiply_piece(panel, start + i, i, row, side, first, tokens);
        }
        workgroupBarrier();
        if (lane < tokens) {
            sum = add(sum, side, count, tokens, lane, row);
        }
        side = 1u - side;
    }
    return sum;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let group = group_of(id);
    if (group >= p.groups) {
        return;
    }
    start_levels(thread);
    let tiles = (p.tokens + TILE - 1u) / TILE;
    let panel = begin(group / tiles);
    let first = group % tiles * TILE;
    let tokens = min(TILE, p.tokens - first);
    let row = thread % 16u;
    // Of the threads of a row; of those that add, also the token.
    let lane = thread / 16u;
    var up = 0.0;
    if (PAIR) {
        matrix = 1u;
        up = product(panel, first, tokens, row, lane);
        matrix = 0u;
    }
    let sum = product(panel, first, tokens, row, lane);
    finish(sum, up, panel * 16u + row, first + lane, lane < tokens);
}
