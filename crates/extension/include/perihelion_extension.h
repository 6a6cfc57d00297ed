/*
 * The C ABI of Perihelion's extensions: libraries of custom ops. Says the same as `src/abi.rs` beside it.
 *
 * A library exports one function, `perihelion_extension_v1`. What it points to lives as long as the library does and
 * never changes. Ops are called from several threads at once. C++ exceptions must not leave an op.
 */
#ifndef PERIHELION_EXTENSION_H
#define PERIHELION_EXTENSION_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PERIHELION_ABI_VERSION 1
#define PERIHELION_MAX_RANK 8

#if defined(_WIN32)
#define PERIHELION_EXPORT __declspec(dllexport)
#elif defined(__GNUC__)
#define PERIHELION_EXPORT __attribute__((visibility("default")))
#else
#define PERIHELION_EXPORT
#endif

/* The status of a call. */
enum { PERIHELION_OK = 0, PERIHELION_ERROR = 1, PERIHELION_PANIC = 2 };

/* What an op does to an operand: a tensor is read; a buffer is read, or changed. */
enum { PERIHELION_TENSOR = 0, PERIHELION_BUFFER_READ = 1, PERIHELION_BUFFER_WRITE = 2 };

/* What a parameter can be. */
enum {
    PERIHELION_BOOL = 1,
    PERIHELION_INT = 2,
    PERIHELION_FLOAT = 3,
    PERIHELION_STRING = 4,
    PERIHELION_DTYPE = 5,
    PERIHELION_INTS = 6
};

/* The types of elements. */
enum {
    PERIHELION_DTYPE_BOOL = 1,
    PERIHELION_DTYPE_F16 = 79,
    PERIHELION_DTYPE_BF16 = 80,
    PERIHELION_DTYPE_F32 = 81,
    PERIHELION_DTYPE_F64 = 82,
    PERIHELION_DTYPE_U8 = 134,
    PERIHELION_DTYPE_I8 = 135,
    PERIHELION_DTYPE_U16 = 136,
    PERIHELION_DTYPE_I16 = 137,
    PERIHELION_DTYPE_U32 = 138,
    PERIHELION_DTYPE_I32 = 139,
    PERIHELION_DTYPE_U64 = 140,
    PERIHELION_DTYPE_I64 = 141
};

/* UTF-8, not ended by a zero; `data` may be null if there are no bytes. */
typedef struct {
    const char *data;
    size_t len;
} PerihelionText;

/* The text of a string literal, as an initializer. */
#define PERIHELION_TEXT(literal) {literal, sizeof(literal) - 1}

/* A row-major array, aligned to the size of its elements at least. In type rules there is no data. */
typedef struct {
    void *data;
    size_t bytes;
    /* The sizes of the axes, outermost first; those from `rank` on are 0. */
    size_t shape[PERIHELION_MAX_RANK];
    uint32_t rank;
    uint32_t dtype;
} PerihelionTensor;

/* The value of a parameter that was given; `kind` says which field counts (bool, int, dtype: `integer`). */
typedef struct {
    PerihelionText name;
    uint32_t kind;
    uint32_t reserved;
    int64_t integer;
    double number;
    PerihelionText text;
    const int64_t *ints;
    size_t int_count;
} PerihelionArgument;

/* Room for the words of an error: write UTF-8 to `data`, at most `capacity` bytes, and set `len`. */
typedef struct {
    char *data;
    size_t capacity;
    size_t len;
} PerihelionMessage;

/* What the host offers during a call. */
typedef struct {
    size_t struct_size;
    void *context;
    /* Calls `body(body_context, i)` once with each i below `chunks`, on any thread and in any order, and returns when
     * all are done. Choose `chunks` by the shapes alone, so that results do. */
    void (*parallel_for)(void *context, size_t chunks, void *body_context, void (*body)(void *body_context, size_t i));
} PerihelionHost;

/* One call of a type rule or of an op. Results are written whole; their contents are undefined before. */
typedef struct {
    size_t struct_size;
    const PerihelionTensor *operands;
    size_t operand_count;
    PerihelionTensor *results;
    size_t result_count;
    const PerihelionArgument *arguments;
    size_t argument_count;
    PerihelionMessage *message;
    const PerihelionHost *host;
} PerihelionCall;

/* Gives a status. */
typedef uint32_t (*PerihelionFunction)(const PerihelionCall *call);

/* What an op takes at one position. */
typedef struct {
    PerihelionText name;
    uint32_t access;
    uint32_t reserved;
} PerihelionOperand;

/* What an op is told besides its operands. */
typedef struct {
    PerihelionText name;
    uint32_t kind;
    uint32_t required;
} PerihelionParameter;

/* An op: what it takes and gives, and what it does. */
typedef struct {
    /* Letters, digits, underscores, points. A built-in op of that name is shadowed. */
    PerihelionText name;
    const PerihelionOperand *operands;
    size_t operand_count;
    const PerihelionParameter *parameters;
    size_t parameter_count;
    uint32_t min_results;
    uint32_t max_results;
    /* 1 if the last operand, a tensor, may come any number of times, also none; else 0. */
    uint32_t variadic;
    uint32_t reserved;
    /* The type rule: sets dtype, rank and shape of each result from those of the operands. They hold at first what the
     * graph states, and what they hold afterwards must be that. Null if there is no rule. */
    PerihelionFunction infer;
    PerihelionFunction run;
} PerihelionOp;

/* What a library offers. */
typedef struct {
    uint32_t abi_version; /* PERIHELION_ABI_VERSION */
    uint32_t struct_size; /* sizeof(PerihelionLibrary) */
    uint32_t op_size;     /* sizeof(PerihelionOp) */
    uint32_t reserved;
    PerihelionText name;
    PerihelionText version;
    const PerihelionOp *ops;
    size_t op_count;
} PerihelionLibrary;

/* What each library defines. */
PERIHELION_EXPORT const PerihelionLibrary *perihelion_extension_v1(void);

#ifdef __cplusplus
}
#endif

#endif
