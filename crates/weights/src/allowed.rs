//! The Python objects that a pickle may name: tensors, and what holds them. Everything else is refused by name.

use tensor::DType;

/// An allowed object. None of them is Python: each has a meaning in `pytorch`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Global {
    /// A dict that keeps its order.
    OrderedDict,
    /// `(storage, offset, size, stride, …)` → tensor.
    RebuildTensor,
    /// The same with the dtype as seventh argument, for dtypes that have no storage class.
    RebuildTensorV3,
    /// `(tensor, requires_grad, hooks)` → tensor.
    RebuildParameter,
    /// A storage class, which says the dtype.
    Storage(DType),
    /// A storage class of bytes: the tensor says the dtype.
    UntypedStorage,
    /// A dtype.
    DType(DType),
    /// `(dims)` → dims, in settings next to the weights.
    Size,
    /// `(name)` → device, likewise.
    Device,
}

/// The allow-list.
const ALLOWED: &[(&str, &str, Global)] = &[
    ("collections", "OrderedDict", Global::OrderedDict),
    ("torch._utils", "_rebuild_tensor", Global::RebuildTensor),
    ("torch._utils", "_rebuild_tensor_v2", Global::RebuildTensor),
    ("torch._utils", "_rebuild_tensor_v3", Global::RebuildTensorV3),
    ("torch._utils", "_rebuild_parameter", Global::RebuildParameter),
    ("torch", "Size", Global::Size),
    ("torch", "device", Global::Device),
    ("torch", "UntypedStorage", Global::UntypedStorage),
    ("torch.storage", "UntypedStorage", Global::UntypedStorage),
    ("torch", "DoubleStorage", Global::Storage(DType::F64)),
    ("torch", "FloatStorage", Global::Storage(DType::F32)),
    ("torch", "HalfStorage", Global::Storage(DType::F16)),
    ("torch", "BFloat16Storage", Global::Storage(DType::BF16)),
    ("torch", "LongStorage", Global::Storage(DType::I64)),
    ("torch", "IntStorage", Global::Storage(DType::I32)),
    ("torch", "ShortStorage", Global::Storage(DType::I16)),
    ("torch", "CharStorage", Global::Storage(DType::I8)),
    ("torch", "ByteStorage", Global::Storage(DType::U8)),
    ("torch", "BoolStorage", Global::Storage(DType::Bool)),
    ("torch", "float64", Global::DType(DType::F64)),
    ("torch", "float32", Global::DType(DType::F32)),
    ("torch", "float16", Global::DType(DType::F16)),
    ("torch", "bfloat16", Global::DType(DType::BF16)),
    ("torch", "float8_e4m3fn", Global::DType(DType::F8E4M3)),
    ("torch", "float8_e4m3fnuz", Global::DType(DType::F8E4M3Fnuz)),
    ("torch", "float8_e5m2", Global::DType(DType::F8E5M2)),
    ("torch", "float8_e5m2fnuz", Global::DType(DType::F8E5M2Fnuz)),
    ("torch", "float8_e8m0fnu", Global::DType(DType::F8E8M0)),
    ("torch", "int64", Global::DType(DType::I64)),
    ("torch", "int32", Global::DType(DType::I32)),
    ("torch", "int16", Global::DType(DType::I16)),
    ("torch", "int8", Global::DType(DType::I8)),
    ("torch", "uint8", Global::DType(DType::U8)),
    ("torch", "uint16", Global::DType(DType::U16)),
    ("torch", "uint32", Global::DType(DType::U32)),
    ("torch", "uint64", Global::DType(DType::U64)),
    ("torch", "bool", Global::DType(DType::Bool)),
];

/// The object of a name, if it is allowed.
pub(crate) fn lookup(module: &str, name: &str) -> Option<Global> {
    ALLOWED.iter().find(|row| (row.0, row.1) == (module, name)).map(|row| row.2)
}
