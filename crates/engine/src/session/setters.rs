//! The setters of a session, under the names of the documentation.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::log;
use crate::settings::turns_on;
use crate::{
    AssertLevel, Error, InferenceSession, KernelSettings, LogLevel, PrintOptions, PrintStyle, Profiling,
    Reproducible, SplitKReductionPrecision, Totals,
};

/// The variable that [`InferenceSession::gpu_profiling`] overrides.
const PROFILING: &str = "PERIHELION_ENABLE_PROFILING";

/// The variable of MAX programs, which is read if ours is unset.
const OTHER_PROFILING: &str = "MODULAR_ENABLE_PROFILING";

impl InferenceSession {
    /// What the next compile is set to.
    pub fn kernel_settings(&self) -> KernelSettings {
        let debug = self.debug();
        let check = debug.uninitialized_read_check();
        KernelSettings {
            assert_level: debug.assert_level().unwrap_or_default(),
            op_log_level: debug.op_log_level().unwrap_or_default(),
            nan_check: debug.nan_check(),
            uninitialized_read_check: check.then(|| debug.uninitialized_read_mode().unwrap_or_default()),
            source_tracebacks: debug.source_tracebacks(),
            ..*self.settings()
        }
    }

    /// Quantizes the operands of matrix products to `f8e4m3` with one f32 scale per tensor, where they are floats; a
    /// device without such products computes with the rounded values. `false`, `off`, `no` and `0` turn it off.
    ///
    /// The scale of an activation depends on all of its rows, so a row's results depend on the others in its batch.
    pub fn enable_per_tensor_fp8_quantize(&self, mode: &str) {
        self.settings().per_tensor_fp8_quantize = turns_on(mode);
    }

    /// Multiplies quantized weights with activations as they are. By default activations are rounded to int8 in blocks
    /// of 32, which changes products by about half a percent.
    pub fn set_exact_activations(&self, exact: bool) {
        self.settings().exact_activations = exact;
    }

    /// Sets where models compute the same bits. With [`Reproducible::Machine`], linear layers and experts of bf16 weights
    /// round activations to bf16 and multiply pairs, if the processor has instructions for that (AVX-512 or ARM with bf16):
    /// many tokens are then up to twice as fast. Batches, threads and the cache change no bit either way.
    /// [`InferenceSession::set_exact_activations`] wins.
    ///
    /// # Errors
    /// If it is the name of no member.
    pub fn set_reproducible<R>(&self, reproducible: R) -> Result<(), Error>
    where
        R: TryInto<Reproducible>,
        Error: From<R::Error>,
    {
        self.settings().reproducible = reproducible.try_into()?;
        Ok(())
    }

    /// Picks the largest elements of f32, f16 and bf16 among those that reach a bound, which the maxima of parts of a row
    /// give: faster for a few of many, such as 50 of the logits of a vocabulary. The results are the same. `false`, `off`,
    /// `no` and `0` turn it off.
    pub fn use_fi_topk_kernel(&self, mode: &str) {
        self.settings().fi_top_k = turns_on(mode);
    }

    /// Picks the largest elements with a full sort, whatever [`InferenceSession::use_fi_topk_kernel`] says. `false`,
    /// `off`, `no` and `0` turn it off.
    pub fn use_old_top_k_kernel(&self, mode: &str) {
        self.settings().old_top_k = turns_on(mode);
    }

    /// Sets in which precision the partial sums of long matrix products are kept: it matters for
    /// [`graph::Builder::matmul`] of f16 or bf16 over an inner axis of more than 512, of which 512 make a partial sum.
    /// By [`SplitKReductionPrecision::Accum`] all is added up in f32 and rounded once, by
    /// [`SplitKReductionPrecision::Output`] each partial sum is rounded too. Products that give f32 stay as they are, and
    /// those that [`InferenceSession::enable_per_tensor_fp8_quantize`] makes.
    ///
    /// # Errors
    /// If it is the name of no member.
    pub fn set_split_k_reduction_precision<P>(&self, precision: P) -> Result<(), Error>
    where
        P: TryInto<SplitKReductionPrecision>,
        Error: From<P::Error>,
    {
        self.settings().split_k_reduction_precision = precision.try_into()?;
        Ok(())
    }

    /// Sets which checks stay in compiled models; the same as [`crate::DebugConfig::set_assert_level`].
    ///
    /// The name is the documentation's; kernels here are Rust.
    pub fn set_mojo_assert_level(&self, level: AssertLevel) {
        self.debug().set_assert_level(level);
    }

    /// Sets the least severe events that compiled models log, through [`tracing`] under the target
    /// `perihelion::kernel`. Sessions start with what `PERIHELION_LOG` says, see [`crate::show_logs`].
    ///
    /// The name is the documentation's; kernels here are Rust.
    ///
    /// # Errors
    /// If it is the name of no member.
    pub fn set_mojo_log_level<L>(&self, level: L) -> Result<(), Error>
    where
        L: TryInto<LogLevel>,
        Error: From<L::Error>,
    {
        self.settings().log_level = level.try_into()?;
        Ok(())
    }

    /// Measures the calls of models on any device: `off`, `on` (each step) or `detailed` (also the shapes they saw, and
    /// the phases of calls). Overrides the environment variable `PERIHELION_ENABLE_PROFILING`, or
    /// `MODULAR_ENABLE_PROFILING` if that is unset.
    ///
    /// What was measured goes into a trace for Perfetto ([`InferenceSession::set_trace_file`]) and into a summary
    /// ([`InferenceSession::profile_summary`]). A device marks the steps for its own tools ([`crate::Marker`]).
    ///
    /// # Errors
    /// If it is no mode.
    pub fn gpu_profiling<M>(&self, mode: M) -> Result<(), Error>
    where
        M: TryInto<Profiling>,
        Error: From<M::Error>,
    {
        self.settings().profiling = mode.try_into()?;
        Ok(())
    }

    /// Adds a range of the caller's own work, on this thread, to the trace. Does nothing unless calls are measured in
    /// detail ([`Profiling::Detailed`]).
    ///
    /// # Errors
    /// If the trace cannot be written.
    pub fn record_range(
        &self,
        name: &str,
        category: &'static str,
        start: Instant,
        duration: Duration,
    ) -> Result<(), Error> {
        if self.settings().profiling != Profiling::Detailed {
            return Ok(());
        }
        self.instruments.recorder.record_range(name, category, start, duration)
    }

    /// The file of the trace. Unset, it is what the environment variable `PERIHELION_TRACE_FILE` names, or else
    /// `perihelion-PID-NUMBER.trace.json` in the current directory. It is complete once the session and its models are
    /// gone.
    pub fn set_trace_file(&self, path: impl Into<PathBuf>) {
        self.instruments.recorder.set_path(path.into());
    }

    /// Writes what was measured so far. Gives the file, or nothing if nothing was measured.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_trace(&self) -> Result<Option<PathBuf>, Error> {
        self.instruments.recorder.write()
    }

    /// How long each kernel took in the calls that were measured so far.
    pub fn profile_summary(&self) -> Totals {
        self.instruments.recorder.totals()
    }

    /// Sets how the values of [`graph::ops::Print`] are shown by all models of this session, at once. `precision` counts
    /// for [`PrintStyle::Full`], the directory for the two binary styles.
    ///
    /// # Errors
    /// If it is the name of no style, or a binary style has no directory.
    pub fn set_debug_print_options<S>(
        &self,
        style: S,
        precision: usize,
        output_directory: Option<&Path>,
    ) -> Result<(), Error>
    where
        S: TryInto<PrintStyle>,
        Error: From<S::Error>,
    {
        let output_directory = output_directory.map(Path::to_path_buf);
        let options = PrintOptions { style: style.try_into()?, precision, output_directory };
        options.check()?;
        self.debug().set_print_style(options.style);
        self.instruments.printer.set_options(options);
        Ok(())
    }

    /// How values print now.
    pub fn debug_print_options(&self) -> PrintOptions {
        self.instruments.print_options()
    }

    /// Lets what models print go elsewhere than to standard output.
    pub fn set_print_sink(&self, sink: impl Write + Send + 'static) {
        self.instruments.printer.set_sink(Box::new(sink));
    }

    fn settings(&self) -> MutexGuard<'_, KernelSettings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The settings of a new session.
///
/// # Errors
/// If the profiling mode is none, or [`log::show_logs`] would fail.
pub(crate) fn from_environment(variable: &dyn Fn(&str) -> Option<String>) -> Result<KernelSettings, Error> {
    let on = |name: &str| variable(name).is_some_and(|word| turns_on(&word));
    let set = [PROFILING, OTHER_PROFILING].into_iter().find_map(|name| Some((name, variable(name)?)));
    let profiling = match set.as_ref().map(|(name, mode)| (*name, &mode[..])) {
        None | Some((_, "" | "0" | "false")) => Profiling::Off,
        Some((_, "1" | "true")) => Profiling::On,
        Some((name, mode)) => {
            mode.parse().map_err(|_| Error::setting(name, mode, "one of off, on, detailed"))?
        }
    };
    Ok(KernelSettings {
        profiling,
        log_level: log::starting_level(variable(log::VARIABLE).as_deref())?,
        per_tensor_fp8_quantize: on("ENABLE_PER_TENSOR_FP8_QUANTIZE"),
        fi_top_k: on("USE_FI_TOPK_KERNEL"),
        old_top_k: on("USE_OLD_TOP_K_KERNEL"),
        ..KernelSettings::default()
    })
}

#[cfg(test)]
mod tests {
    use graph::Graph;

    use super::*;
    use crate::testing::{build, f32, reference_session};

    fn identity() -> Graph {
        build("g", |b| Ok(vec![b.input("x", f32(&["n"]))]))
    }

    fn second_line(session: &InferenceSession) -> String {
        session.compile(&identity()).unwrap().to_string().lines().nth(1).unwrap().to_string()
    }

    #[test]
    fn settings_show_in_plans_and_can_be_undone() {
        let session = reference_session();
        let usual = "  input 0 'x' f32[n]";
        assert_eq!(second_line(&session), usual);
        session.use_fi_topk_kernel("on");
        session.enable_per_tensor_fp8_quantize("yes");
        session.set_exact_activations(true);
        session.set_reproducible("machine").unwrap();
        session.set_split_k_reduction_precision("OUTPUT").unwrap();
        session.set_mojo_log_level(LogLevel::Error).unwrap();
        session.set_mojo_assert_level(AssertLevel::None);
        session.gpu_profiling("detailed").unwrap();
        assert_eq!(
            second_line(&session),
            "  with per_tensor_fp8_quantize = true, exact_activations = true, reproducible = machine, profiling = detailed, assert_level = NONE, log_level = ERROR, \
             split_k_reduction_precision = OUTPUT, fi_top_k = true"
        );
        session.use_fi_topk_kernel("Off");
        session.enable_per_tensor_fp8_quantize("0");
        session.set_exact_activations(false);
        session.set_reproducible(Reproducible::Any).unwrap();
        session.set_split_k_reduction_precision(SplitKReductionPrecision::Accum).unwrap();
        session.set_mojo_log_level("NOTSET").unwrap();
        session.set_mojo_assert_level(AssertLevel::Safe);
        session.gpu_profiling(Profiling::Off).unwrap();
        assert_eq!(second_line(&session), usual);
        let error = session.gpu_profiling("loud").unwrap_err().to_string();
        assert_eq!(error, "the profiling mode is `loud`, expected one of off, on, detailed");
    }

    #[test]
    fn the_environment_is_where_settings_start() {
        let settings = |given: &[(&str, &str)]| {
            from_environment(&|name| {
                given.iter().find(|(other, _)| *other == name).map(|(_, value)| value.to_string())
            })
        };
        assert_eq!(settings(&[]).unwrap(), KernelSettings::default());
        let given = [(PROFILING, "detailed"), ("USE_OLD_TOP_K_KERNEL", "1"), ("USE_FI_TOPK_KERNEL", "off")];
        assert_eq!(settings(&given).unwrap().to_string(), "profiling = detailed, old_top_k = true");
        let other = settings(&[(OTHER_PROFILING, "1")]).unwrap();
        assert_eq!(other.profiling, Profiling::On);
        assert_eq!(
            settings(&[(PROFILING, "off"), (OTHER_PROFILING, "on")]).unwrap().profiling,
            Profiling::Off
        );
        let error = settings(&[(OTHER_PROFILING, "some")]).unwrap_err().to_string();
        assert!(error.starts_with("the MODULAR_ENABLE_PROFILING is `some`"), "{error}");
        let error = settings(&[(PROFILING, "some")]).unwrap_err().to_string();
        let expected = "the PERIHELION_ENABLE_PROFILING is `some`, expected one of off, on, detailed";
        assert_eq!(error, expected);
    }
}
