//! The dense layers behind the pooling of some embedding models.

use std::path::Path;

use engine::{InferenceSession, Model};
use graph::ops::{Binary, Linear, Unary, Weight};
use graph::{Graph, Type};
use serde::Deserialize;
use tensor::{Buffer, DType, Tensor};
use weights::{Format, Weights};

use crate::Error;
use crate::plan::model_files::sentence_transformers::read;

/// `activation(x · Wᵀ + b)` of a text's vector.
#[derive(Debug)]
pub(crate) struct DenseLayer {
    /// f32[rows, columns]
    weight: Tensor,
    /// f32[rows]
    bias: Option<Tensor>,
    activation: Option<Unary>,
}

/// The layers of a model, ready to run.
pub(crate) struct DenseLayers {
    model: Model,
    /// Dims of the results.
    pub(crate) width: usize,
}

/// `config.json` in the folder of a layer.
#[derive(Deserialize)]
struct DenseConfig {
    activation_function: Option<String>,
    #[serde(default = "of_text")]
    module_input_name: String,
}

/// The layer's input, unless the file names another one.
fn of_text() -> String {
    "sentence_embedding".to_string()
}

impl DenseLayer {
    /// The layer in a folder of sentence-transformers.
    ///
    /// # Errors
    /// If a file is missing or damaged, or asks for what is not supported.
    pub(crate) fn from_folder(folder: &Path) -> Result<DenseLayer, Error> {
        let path = folder.join("config.json");
        let wrong = |problem: String| Error::embedding(path.display(), problem);
        let config: DenseConfig = read(&path)?.ok_or_else(|| wrong("there is no such file".into()))?;
        if config.module_input_name != of_text() {
            return Err(wrong(format!(
                "`module_input_name` is {}, expected {}",
                config.module_input_name,
                of_text()
            )));
        }
        let class = config.activation_function.unwrap_or_default();
        let activation = match class.rsplit('.').next().unwrap_or_default() {
            "Identity" => None,
            // The default of sentence-transformers.
            "Tanh" | "" => Some(Unary::Tanh),
            "ReLU" => Some(Unary::Relu),
            "GELU" => Some(Unary::Gelu),
            "SiLU" => Some(Unary::Silu),
            "Sigmoid" => Some(Unary::Sigmoid),
            _ => {
                let known = "Identity, Tanh, ReLU, GELU, SiLU, Sigmoid";
                return Err(wrong(format!("the activation {class} is not supported; known: {known}")));
            }
        };
        let files = [Format::Safetensors, Format::PyTorch].map(|format| folder.join(format.default_name()));
        let file = files.iter().find(|path| path.exists()).unwrap_or(&files[0]);
        let weights = Weights::open(file)?;
        let weight = weights.get("linear.weight");
        let weight = weight.ok_or_else(|| Error::embedding(file.display(), "`linear.weight` is missing"))?;
        Ok(DenseLayer { weight: plain(weight), bias: weights.get("linear.bias").map(plain), activation })
    }

    /// The layers in a GGUF file.
    pub(crate) fn from_gguf(weights: &Weights) -> Vec<DenseLayer> {
        let layer = |name: &str| {
            let part = |leaf: &str| weights.get(&format!("{name}.{leaf}")).map(plain);
            Some(DenseLayer { weight: part("weight")?, bias: part("bias"), activation: None })
        };
        ["dense_2", "dense_3"].into_iter().filter_map(layer).collect()
    }
}

fn plain(tensor: &Tensor) -> Tensor {
    Tensor::from_slice(*tensor.shape(), &tensor.to_f32_vec())
}

impl DenseLayers {
    /// Compiles layers for vectors of `width` dims; `None` if there are none.
    ///
    /// # Errors
    /// If they do not fit each other.
    pub(crate) fn load(
        session: &InferenceSession,
        layers: &[DenseLayer],
        mut width: usize,
    ) -> Result<Option<DenseLayers>, Error> {
        if layers.is_empty() {
            return Ok(None);
        }
        let mut graph = Graph::new("dense");
        let mut x = graph.input("vectors", Type::new(DType::F32, ["batch".into(), graph::Dim::from(width)]));
        let weight = |index: usize, leaf: &str, tensor: &Tensor| {
            let ty = Type::new(DType::F32, tensor.shape().iter().copied());
            Weight { name: format!("dense.{index}.{leaf}"), ty }
        };
        for (index, DenseLayer { weight: matrix, bias, activation }) in layers.iter().enumerate() {
            let &[rows, columns] = matrix.shape().dims() else {
                let problem = format!("layer {index} has a weight of the shape {}", matrix.shape());
                return Err(Error::embedding("dense layers", problem));
            };
            if columns != width {
                let problem = format!("layer {index} reads {columns} dims, but gets {width}");
                return Err(Error::embedding("dense layers", problem));
            }
            let stored =
                graph.push_one(weight(index, "weight", matrix).into(), &[]).map_err(models::Error::from)?;
            x = graph.push_one(Linear::default().into(), &[x, stored]).map_err(models::Error::from)?;
            if let Some(bias) = bias {
                let bias =
                    graph.push_one(weight(index, "bias", bias).into(), &[]).map_err(models::Error::from)?;
                x = graph.push_one(Binary::Add.into(), &[x, bias]).map_err(models::Error::from)?;
            }
            if let Some(activation) = activation {
                x = graph.push_one((*activation).into(), &[x]).map_err(models::Error::from)?;
            }
            width = rows;
        }
        graph.set_outputs(&[x]);
        let stored = |name: &str| {
            let (index, leaf) = name.strip_prefix("dense.")?.split_once('.')?;
            let layer = layers.get(index.parse::<usize>().ok()?)?;
            if leaf == "bias" { layer.bias.clone() } else { Some(layer.weight.clone()) }
        };
        Ok(Some(DenseLayers { model: session.load(&graph, &stored)?, width }))
    }

    /// What becomes of vectors, each by itself.
    ///
    /// # Errors
    /// If the model fails.
    pub(crate) fn apply(&self, vectors: &[Vec<f32>]) -> Result<Vec<Vec<f32>>, Error> {
        let Some(first) = vectors.first() else { return Ok(Vec::new()) };
        let input = Buffer::from_slice([vectors.len(), first.len()], &vectors.concat());
        let output = self.model.execute(&[input])?;
        let rows = output[0].read().expect("the output is not written by another");
        Ok(rows.as_slice::<f32>().chunks_exact(self.width).map(<[f32]>::to_vec).collect())
    }
}
