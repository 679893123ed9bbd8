//! The GPU backend: a device with its code objects.

use std::path::Path;
use std::sync::Arc;

use rf_graph::{
    Backend, BackendError, Executor, Fusions, MemoryNeed, OperandFormat, Peak, Program, Progress,
};
use rf_hip::{DeviceInfo, Platform, Runtime, SyncMode};
use rf_oracle::case::measure_peak;

use crate::error::Error;
use crate::exec::{self, FUSIONS, GpuExecutor};
use crate::graphs::{GraphMode, LaunchMark};
use crate::launch::Gpu;
use crate::objects::{CodeObjects, CodeOrigin};
use crate::params::{MatmulDevice, MatrixUnit};
use crate::system;
use crate::tuning::{Knob, Tuning};

/// The choice of a device, and its settings.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct GpuOptions {
    /// Device number; by default the discrete GPU with the most memory.
    pub ordinal: Option<usize>,
    /// The use of captured graphs.
    pub graphs: GraphMode,
    /// True if the host thread sleeps while it waits for a batch. Sleeping frees its core for other
    /// work and costs about ten microseconds per token.
    pub sleep: bool,
    /// Compute units over which work is divided; by default the number that the runtime reports.
    /// With 1, matmuls of any size use the largest tiles.
    pub compute_units: Option<usize>,
    /// True if kernels of GPUs that compute a model together poll for signals of each other in
    /// device memory, where all of them access it, instead of waiting for events of the runtime. It
    /// takes less time. By default on NVIDIA: AMD does not promise that a running kernel sees what
    /// another GPU writes to its memory.
    pub signals: Option<bool>,
}

impl GpuOptions {
    /// Sets [`ordinal`](Self::ordinal).
    #[must_use]
    pub fn with_ordinal(mut self, ordinal: impl Into<Option<usize>>) -> Self {
        self.ordinal = ordinal.into();
        self
    }

    /// Sets [`graphs`](Self::graphs).
    #[must_use]
    pub fn with_graphs(mut self, graphs: GraphMode) -> Self {
        self.graphs = graphs;
        self
    }

    /// Sets [`sleep`](Self::sleep).
    #[must_use]
    pub fn with_sleep(mut self, sleep: bool) -> Self {
        self.sleep = sleep;
        self
    }

    /// Sets [`compute_units`](Self::compute_units).
    #[must_use]
    pub fn with_compute_units(mut self, compute_units: impl Into<Option<usize>>) -> Self {
        self.compute_units = compute_units.into();
        self
    }

    /// Sets [`signals`](Self::signals).
    #[must_use]
    pub fn with_signals(mut self, signals: impl Into<Option<bool>>) -> Self {
        self.signals = signals.into();
        self
    }
}

/// A kernel of a small unit that every program uses.
const FIRST_KERNEL: &str = "load_step_u32";

/// A backend that runs programs on a GPU.
pub struct GpuBackend {
    gpu: Arc<Gpu>,
    /// Marks the first launches of captured graphs; `None` if steps are not replayed as graphs.
    graphs: Option<Arc<LaunchMark>>,
    tuning: Tuning,
    /// The folder of `/proc` and `/sys`.
    root: Arc<Path>,
}

impl GpuBackend {
    /// Opens a device of the installed runtime.
    ///
    /// # Errors
    ///
    /// If no runtime is installed, the device does not exist, or the program has no kernels for it.
    pub fn new(options: GpuOptions) -> Result<Self, Error> {
        Self::on(&Runtime::load()?, options)
    }

    /// Opens a device of a loaded runtime.
    ///
    /// # Errors
    ///
    /// If the device does not exist or the program has no kernels for it.
    pub fn on(runtime: &Runtime, options: GpuOptions) -> Result<Self, Error> {
        let device = match options.ordinal {
            // No other device is touched: the driver of one may be broken.
            Some(ordinal) => {
                let count = runtime.device_count()?;
                if ordinal >= count {
                    return Err(Error::NoSuchDevice { ordinal, count });
                }
                runtime.device(ordinal)?
            }
            None => runtime
                .devices()?
                .into_iter()
                .max_by_key(|device| {
                    let info = device.info();
                    (!info.integrated, info.total_memory_bytes, std::cmp::Reverse(info.ordinal))
                })
                .ok_or(Error::NoDevice { platform: runtime.platform() })?,
        };
        let objects = CodeObjects::for_device(&device.info().arch)?;
        let sync = if options.sleep { SyncMode::Sleep } else { SyncMode::Spin };
        let context = device.context_with(sync)?;
        let compute_units =
            options.compute_units.unwrap_or(context.info().compute_units as usize).max(1);
        let signals = options.signals.unwrap_or(runtime.platform() == Platform::Nvidia);
        let gpu = Arc::new(Gpu::new(context, objects, compute_units, signals));
        // A driver that refuses the code does so now.
        gpu.kernel(FIRST_KERNEL)?;
        let mark = LaunchMark::new(runtime, gpu.context().info());
        let graphs = options.graphs.is_on(runtime, &mark).then(|| Arc::new(mark));
        Ok(Self { gpu, graphs, tuning: Tuning::default(), root: Path::new("/").into() })
    }

    /// A backend on the same device, with these choices.
    #[must_use]
    pub fn with_tuning(&self, tuning: Tuning) -> Self {
        let (gpu, root) = (Arc::clone(&self.gpu), Arc::clone(&self.root));
        Self { gpu, graphs: self.graphs.clone(), tuning, root }
    }

    /// Reads what the operating system knows of the device below another folder than `/`, as tests
    /// do for the memory of machines that they do not have.
    #[must_use]
    pub fn with_system_root(self, root: &Path) -> Self {
        Self { root: root.into(), ..self }
    }

    /// A backend on the same device, with those of the choices whose code this machine has or can
    /// compile. `refused` receives the others.
    #[must_use]
    pub fn with_loaded_tuning(
        &self,
        mut tuning: Tuning,
        refused: &mut dyn FnMut(Knob, OperandFormat, Error),
    ) -> Self {
        let all = tuning;
        for (knob, format, value) in all.values() {
            for kernel in knob.kernels(format).into_iter().flatten() {
                let Some(variant) = knob.variant(value) else { continue };
                if let Err(error) = self.gpu.kernel_of(kernel, Some(variant)) {
                    tuning.set(knob, format, None);
                    refused(knob, format, error);
                    break;
                }
            }
        }
        self.with_tuning(tuning)
    }

    /// Returns true if choices of code can be tried: this machine has ROCm's compiler.
    pub(crate) fn compiles(&self) -> bool {
        self.gpu.compiles()
    }

    /// The choices that replace those of formulas.
    pub fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// A digest of the code to which a choice applies, and of the number of compute units; `None`
    /// if this device has no such code. A choice that was measured with other code does not hold.
    pub fn code_digest(&self, knob: Knob, format: OperandFormat) -> Option<u128> {
        knob.kernel(format).and_then(|kernel| self.gpu.code_digest(kernel))
    }

    /// The device as kernels are chosen for it.
    pub(crate) fn matmul_device(&self) -> MatmulDevice {
        let (info, code) = (self.device(), self.code());
        let arch = match &code {
            CodeOrigin::Ptx { target } => *target,
            _ => &info.arch,
        };
        let device = MatmulDevice::new(self.gpu.compute_units(), arch);
        MatmulDevice {
            lds_bytes: info.lds_bytes_per_workgroup_opt_in,
            tuning: self.tuning,
            ..device
        }
    }

    /// Name, architecture and limits of the device.
    pub fn device(&self) -> &DeviceInfo {
        self.gpu.context().info()
    }

    /// Returns true if the memory of the device is that of the machine, and its runtime does not
    /// count what other programs take of it.
    fn shares_memory(&self) -> bool {
        let DeviceInfo { platform, integrated, .. } = self.device();
        *platform == Platform::Amd && *integrated
    }

    /// The kernels that programs of this backend have launched, by name.
    pub fn used_kernels(&self) -> Vec<&'static str> {
        self.gpu.used_kernels()
    }

    /// The origin of the code in use.
    pub fn code(&self) -> CodeOrigin {
        self.gpu.choice()
    }
}

impl Backend for GpuBackend {
    fn name(&self) -> &'static str {
        "GPU"
    }

    fn description(&self) -> String {
        let info = self.device();
        let code = self.code();
        match self.tuning.len() {
            0 => format!("{} ({}, {code})", info.name, info.arch),
            tuned => {
                let digest = self.tuning.digest();
                format!("{} ({}, {code}, {tuned} tuned choices {digest:08x})", info.name, info.arch)
            }
        }
    }

    fn fusions(&self) -> Fusions {
        FUSIONS
    }

    /// True on matrix units, which multiply f16 operands of several rows.
    fn rounds_operands_to_f16(&self) -> bool {
        self.matmul_device().matrix_unit != MatrixUnit::None
    }

    /// Free device memory. On AMD the least that HIP and the kernel driver name, because HIP does
    /// not count what other programs take.
    fn available_memory_bytes(&self) -> Option<u64> {
        let free = self.gpu.context().memory_info().ok().map(|(free, _)| free);
        let pci_bus_id = &self.device().pci_bus_id;
        match self.device().platform {
            Platform::Amd if self.shares_memory() => {
                system::shared_memory_bytes(&self.root, pci_bus_id, free)
            }
            Platform::Amd => system::card_memory_bytes(&self.root, pci_bus_id, free),
            Platform::Nvidia => free,
        }
    }

    /// A program that is too large for an integrated AMD GPU is a warning here, not an error,
    /// because the free memory is a guess.
    fn check_memory(&self, program: &Program) -> Result<(), BackendError> {
        let need = self.memory_need(program)?;
        match self.available_memory_bytes() {
            Some(available_bytes) if need.total_bytes() > available_bytes => {
                let error =
                    BackendError::DoesNotFit { backend: self.name(), need, available_bytes };
                if !self.shares_memory() {
                    return Err(error);
                }
                tracing::warn!("{error}; the GPU shares the memory of the machine, so it may fit");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Times the fastest matmuls, because no API reports the peak of the matrix units.
    fn measure_peak(&self) -> Result<Peak, BackendError> {
        measure_peak(self)
    }

    fn memory_need(&self, program: &Program) -> Result<MemoryNeed, BackendError> {
        Ok(exec::memory_need(&self.gpu, self.matmul_device(), &self.root, program)?)
    }

    fn compile(
        &self,
        program: Program,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Executor>, BackendError> {
        self.check_memory(&program)?;
        let (gpu, device) = (Arc::clone(&self.gpu), self.matmul_device());
        Ok(Box::new(GpuExecutor::new(gpu, device, self.graphs.clone(), program, progress)?))
    }
}
