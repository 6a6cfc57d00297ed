// The products of a panel of floats with up to 8 tokens. All threads bring the weights and inputs of some columns to the memory
// of the group; then a thread per row and token adds their products in the order of the columns.

const TILE = 8u;
const THREADS = 128u;

// Where the rows of this batch begin.
var<private> x_start: u32;

// Which half of the memory a round writes: the other one may still be read.
var<private> side: u32;

var<workgroup> stage: array<u32, 2 * WORDS>;
var<workgroup> inputs: array<f32, 2 * TILE * COLUMNS>;

// Where the input of a token and a column of a round lies: tokens are shifted, so that they come from other banks.
fn place(side: u32, token: u32, column: u32) -> u32 {
    return (side * TILE + token) * COLUMNS + (column + token) % COLUMNS;
}

// 16 f32 a column.
fn singles(at: u32, column: u32, row: u32) -> vec2<f32> {
    let first = at + 16u * column + row;
    return vec2(bitcast<f32>(stage[first]), bitcast<f32>(stage[first + 16u]));
}

// Adds the products of a round to the sum of a row and a token.
fn add(before: f32, side: u32, count: u32, token: u32, row: u32) -> f32 {
    var sum = select(before, 0.0, SCALED);
    let at = side * WORDS;
    for (var column = 0u; column + 1u < count; column += 2u) {
        let weights = pair(at, column, row);
        sum = fused(weights.x, inputs[place(side, token, column)], sum);
        sum = fused(weights.y, inputs[place(side, token, column + 1u)], sum);
    }
    if (count % 2u == 1u) {
        sum = fused(pair(at, count - 1u, row).x, inputs[place(side, token, count - 1u)], sum);
    }
    if (SCALED) {
        return fused(sum, bitcast<f32>(stage[at + row]), before);
    }
    return sum;
}

// The sum of the products of a row and a token, of this thread if it adds.
fn product(panel: u32, first: u32, tokens: u32, thread: u32) -> f32 {
    let row = thread % 16u;
    let token = thread / 16u;
    start_stage(panel, thread);
    var sum = 0.0;
    for (var start = 0u; start < p.columns; start += COLUMNS) {
        let count = min(COLUMNS, p.columns - start);
        load(panel, start, count, side, thread);
        for (var t = 0u; t < tokens; t++) {
            for (var column = thread; column < count; column += THREADS) {
                inputs[place(side, t, column)] = x(x_start + (first + t) * p.columns + start + column);
            }
        }
        workgroupBarrier();
        if (token < tokens) {
            sum = add(sum, side, count, token, row);
        }
        side = 1u - side;
    }
    return sum;
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let group = group_of(id);
    if (group >= p.groups) {
        return;
    }
    let tiles = (p.tokens + TILE - 1u) / TILE;
    let part = in_batch(group);
    let panel = begin(part / tiles);
    let first = part % tiles * TILE;
    let tokens = min(TILE, p.tokens - first);
    var up = 0.0;
    if (PAIR) {
        matrix = 1u;
        up = product(panel, first, tokens, thread);
        matrix = 0u;
    }
    let sum = product(panel, first, tokens, thread);
    let token = thread / 16u;
    finish(sum, up, panel * 16u + thread % 16u, first + token, token < tokens);
}
