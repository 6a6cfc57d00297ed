/*
 * A custom op in C: ids into buckets by Knuth's multiplicative hash. u32[..] -> i64[..], with the parameter `buckets`.
 *
 *     cc -O2 -fPIC -shared -I crates/extension/include examples/extensions/hash_buckets.c -o libhash_buckets.so
 */
#include "perihelion_extension.h"

#include <string.h>

static uint32_t refuse(const PerihelionCall *call, const char *words) {
    PerihelionMessage *message = call->message;
    size_t len = strlen(words);
    message->len = len < message->capacity ? len : message->capacity;
    memcpy(message->data, words, message->len);
    return PERIHELION_ERROR;
}

/* The type rule: the result has the operand's shape. */
static uint32_t infer(const PerihelionCall *call) {
    if (call->operands[0].dtype != PERIHELION_DTYPE_U32) {
        return refuse(call, "ids must be u32");
    }
    call->results[0] = call->operands[0];
    call->results[0].dtype = PERIHELION_DTYPE_I64;
    return PERIHELION_OK;
}

static uint32_t run(const PerihelionCall *call) {
    /* The host has checked that there is one argument, of the kind that is declared. */
    int64_t buckets = call->arguments[0].integer;
    if (buckets <= 0) {
        return refuse(call, "`buckets` must be positive");
    }
    const uint32_t *ids = call->operands[0].data;
    int64_t *result = call->results[0].data;
    size_t count = call->operands[0].bytes / sizeof *ids;
    for (size_t i = 0; i < count; i++) {
        result[i] = (int64_t)(ids[i] * UINT32_C(2654435761)) % buckets;
    }
    return PERIHELION_OK;
}

static const PerihelionOperand operands[] = {{PERIHELION_TEXT("ids"), PERIHELION_TENSOR, 0}};
static const PerihelionParameter parameters[] = {{PERIHELION_TEXT("buckets"), PERIHELION_INT, 1}};

static const PerihelionOp ops[] = {{
    .name = PERIHELION_TEXT("hash_buckets"),
    .operands = operands,
    .operand_count = 1,
    .parameters = parameters,
    .parameter_count = 1,
    .min_results = 1,
    .max_results = 1,
    .infer = infer,
    .run = run,
}};

static const PerihelionLibrary library = {
    .abi_version = PERIHELION_ABI_VERSION,
    .struct_size = sizeof(PerihelionLibrary),
    .op_size = sizeof(PerihelionOp),
    .name = PERIHELION_TEXT("hash_buckets"),
    .version = PERIHELION_TEXT("1.0"),
    .ops = ops,
    .op_count = 1,
};

const PerihelionLibrary *perihelion_extension_v1(void) {
    return &library;
}
