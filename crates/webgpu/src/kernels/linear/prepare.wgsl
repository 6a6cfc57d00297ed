// Input rows, normalized, and rounded to int8 once per 32 columns: 8 words of codes, the scale, and the sums of the first and
// of the last 16 codes. Without `CODES` they stay f32.

// Columns of a workgroup.
const SLICE = 1024u;

var<workgroup> squares: array<f32, 64>;
var<workgroup> largest: array<u32, 256>;
var<workgroup> sums: array<i32, 256>;

// `1 / sqrt(mean(x²) + eps)` of a row: 64 running sums, folded by halves.
fn factor_of(start: u32, lane: u32) -> f32 {
    if (lane < 64u) {
        var sum = 0.0;
        for (var column = lane; column < p.columns; column += 64u) {
            let value = x(start + column);
            sum = fused(value, value, sum);
        }
        squares[lane] = sum;
    }
    workgroupBarrier();
    if (lane < 16u) {
        squares[lane] = (squares[lane] + squares[lane + 16u]) + (squares[lane + 32u] + squares[lane + 48u]);
    }
    workgroupBarrier();
    for (var count = 8u; count > 0u; count >>= 1u) {
        if (lane < count) {
            squares[lane] += squares[lane + count];
        }
        workgroupBarrier();
    }
    return 1.0 / sqrt(squares[0] / f32(p.columns) + bitcast<f32>(p.eps));
}

// The code of a value. Those of a block with NaN, and infinities, are -127; what stands next to an infinity is 0.
fn code(value: f32, inverse: f32, most: u32) -> i32 {
    if (most >= 0x7f800000u) {
        let size = bitcast<u32>(value) & 0x7fffffffu;
        return select(0, -127, most > 0x7f800000u || size == 0x7f800000u);
    }
    return i32(round(value * inverse));
}

// Writes the codes of four columns; the first lane of a block writes what they are multiples of, and their sums.
fn put_codes(values: vec4<f32>, block: u32, lane: u32, is_inside: bool) {
    let sizes = bitcast<vec4<u32>>(values) & vec4(0x7fffffffu);
    largest[lane] = max(max(sizes.x, sizes.y), max(sizes.z, sizes.w));
    workgroupBarrier();
    let first = lane / 8u * 8u;
    var most = 0u;
    for (var i = 0u; i < 8u; i++) {
        most = max(most, largest[first + i]);
    }
    var scale = 0u;
    var inverse = 0.0;
    if (most >= 0x7f800000u) {
        scale = most;
    } else if (most > 0x02fe0000u) {
        // Of smaller ones the inverse overflows: they become zeros.
        scale = bitcast<u32>(bitcast<f32>(most) / 127.0);
        inverse = 127.0 / bitcast<f32>(most);
    }
    let codes = vec4<i32>(
        code(values.x, inverse, most),
        code(values.y, inverse, most),
        code(values.z, inverse, most),
        code(values.w, inverse, most),
    );
    sums[lane] = codes.x + codes.y + codes.z + codes.w;
    workgroupBarrier();
    if (!is_inside) {
        return;
    }
    let bytes = bitcast<vec4<u32>>(codes) & vec4(0xffu);
    let at = 11u * block;
    set_result(at + lane % 8u, bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u));
    if (lane % 8u == 0u) {
        set_result(at + 8u, scale);
        set_result(at + 9u, bitcast<u32>(sums[lane] + sums[lane + 1u] + sums[lane + 2u] + sums[lane + 3u]));
        set_result(at + 10u, bitcast<u32>(sums[lane + 4u] + sums[lane + 5u] + sums[lane + 6u] + sums[lane + 7u]));
    }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let group = group_of(id);
    if (group >= p.groups) {
        return;
    }
    let slices = (p.columns + SLICE - 1u) / SLICE;
    let start = group / slices * p.columns;
    let slice = group % slices * SLICE;
    var factor = 1.0;
    if (NORM) {
        factor = factor_of(start, lane);
    }
    if (CODES) {
        let column = slice + 4u * lane;
        var values = vec4(0.0);
        let is_inside = column < p.columns;
        if (is_inside) {
            let at = start + column;
            values = vec4(
                normalized(at, column, factor),
                normalized(at + 1u, column + 1u, factor),
                normalized(at + 2u, column + 2u, factor),
                normalized(at + 3u, column + 3u, factor),
            );
        }
        put_codes(values, (start + column) / 32u, lane, is_inside);
    } else {
        for (var column = slice + lane; column < min(slice + SLICE, p.columns); column += 256u) {
            set_result(start + column, bitcast<u32>(normalized(start + column, column, factor)));
        }
    }
}
