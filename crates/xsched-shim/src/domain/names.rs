//! Recognition of vendors' libraries by SONAME or file name, wherever they are installed.

/// Role of a loaded object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A vendor's library of kernels: its launches are of the system domain.
    Vendor,
    /// A vendor's runtime: it passes on requests of others, so its caller decides.
    Runtime,
    /// The program, or a library of its own.
    Program,
}

/// Names in lower case, without `lib` and without anything from `.so` on; a `*` matches any ending.
const VENDOR: &[&str] = &[
    // NVIDIA
    "cublas",
    "cublaslt",
    "cublasmp",
    "cudnn",
    "cudnn_*",
    "cudss",
    "cufft",
    "cufftw",
    "cufftmp",
    "curand",
    "cusolver",
    "cusolvermg",
    "cusolvermp",
    "cusparse",
    "cusparselt",
    "custatevec",
    "cutensor",
    "cutensormg",
    "cutensornet",
    "nccl",
    "npp*",
    "nvblas",
    "nvinfer",
    "nvinfer_*",
    "nvjpeg",
    "nvjpeg2k",
    "nvonnxparser",
    "nvshmem_host",
    // AMD
    "hipblas",
    "hipblaslt",
    "hipfft",
    "hipfftw",
    "hiprand",
    "hipsolver",
    "hipsparse",
    "hipsparselt",
    "hiptensor",
    "migraphx",
    "migraphx_*",
    "miopen",
    "rccl",
    "rocalution",
    "rocalution_hip",
    "rocblas",
    "rocfft",
    "rocrand",
    "rocsolver",
    "rocsparse",
    // OpenCL
    "clblast",
    "clblas",
    "clfft",
    "clrng",
];
const RUNTIME: &[&str] = &["cuda", "cudart", "amdhip64", "hiprtc", "hsa-runtime64", "opencl"];

/// Plain name of a library: `/x/libcublas-1a2b3c4d.so.12.1` is `cublas`.
fn stem(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    let name = name.split(".so").next().unwrap_or(name);
    let name = name.strip_prefix("lib").unwrap_or(name);
    // Tools that repair wheels add a hash to the name.
    let name = match name.rsplit_once('-') {
        Some((plain, hash)) if hash.len() >= 4 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => plain,
        _ => name,
    };
    name.to_ascii_lowercase()
}

fn listed(list: &[&str], stem: &str) -> bool {
    list.iter().any(|entry| match entry.strip_suffix('*') {
        Some(start) => stem.starts_with(start),
        None => *entry == stem,
    })
}

/// Role of an object, by its file name or SONAME.
pub(super) fn kind(file: &str, soname: Option<&str>) -> Kind {
    let stems = || [Some(file), soname].into_iter().flatten().filter(|n| n.contains(".so")).map(stem);
    if stems().any(|s| listed(VENDOR, &s)) {
        Kind::Vendor
    } else if stems().any(|s| listed(RUNTIME, &s)) {
        Kind::Runtime
    } else {
        Kind::Program
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendors_libraries_are_known_wherever_and_under_whatever_name_they_are_installed() {
        for (file, soname, is) in [
            ("/usr/lib/x86_64-linux-gnu/libcublas.so.12.4.5.8", Some("libcublas.so.12"), Kind::Vendor),
            ("/venv/lib/python3.11/site-packages/nvidia/cublas/lib/libcublasLt.so.12", None, Kind::Vendor),
            ("/x/torch.libs/libcublas-1a2b.so.12", None, Kind::Vendor),
            ("/venv/torch/lib/libcudnn_ops_infer.so.8", None, Kind::Vendor),
            ("/opt/rocm-6.4.0/lib/libMIOpen.so.1.0", Some("libMIOpen.so.1"), Kind::Vendor),
            ("/opt/rocm/lib/libhipblaslt.so.0", None, Kind::Vendor),
            ("/venv/torch/lib/librocblas.so", None, Kind::Vendor),
            ("/odd/place/blas.bin", Some("librocblas.so.4"), Kind::Vendor),
            ("/usr/lib/libnppig.so.12", None, Kind::Vendor),
            ("/venv/torch/lib/libamdhip64.so", None, Kind::Runtime),
            ("/venv/torch/lib/libcudart-d0da41ae.so.11.0", None, Kind::Runtime),
            ("/usr/lib/libOpenCL.so.1", None, Kind::Runtime),
            ("/venv/torch/lib/libtorch_cuda.so", None, Kind::Program),
            ("/home/u/libcublas_wrapper.so", None, Kind::Program),
            ("/home/u/cublas", None, Kind::Program),
            ("", None, Kind::Program),
            ("/usr/lib/libnccl-net.so", None, Kind::Program),
        ] {
            assert_eq!(kind(file, soname), is, "{file}");
        }
    }
}
