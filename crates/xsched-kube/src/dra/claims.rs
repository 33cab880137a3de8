//! Claims: reading them from the API server, and the devices that their containers get.

use std::time::Duration;

use http_body_util::Empty;
use hyper::{Request, Uri};
use serde::Deserialize;
use xsched_proto::class::Class;

use super::DRIVER;
use crate::api::dra::{Claim, Device};
use crate::delivery::class_device;
use crate::gpus::Gpu;
use crate::plain_http;

/// Longest time for an answer of the API server.
const PATIENCE: Duration = Duration::from_secs(10);
/// Size limit of a claim, in bytes: etcd stores no larger objects.
const CLAIM_MAX_BYTES: usize = 2 << 20;

/// The part of a `ResourceClaim` of `resource.k8s.io/v1` that is used here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResourceClaim {
    metadata: Metadata,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    uid: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    allocation: Option<Allocation>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Allocation {
    devices: Allocated,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Allocated {
    results: Vec<Given>,
    config: Vec<Config>,
}

/// A device allocated for a request.
#[derive(Debug, Deserialize)]
struct Given {
    request: String,
    driver: String,
    pool: String,
    device: String,
}

#[derive(Debug, Deserialize)]
struct Config {
    source: String,
    /// Requests that it applies to; empty = all.
    #[serde(default)]
    requests: Vec<String>,
    opaque: Option<Opaque>,
}

#[derive(Debug, Deserialize)]
struct Opaque {
    driver: String,
    parameters: serde_json::Value,
}

/// Parameters of a device class of this project.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ClassConfig {
    api_version: String,
    kind: String,
    class: Class,
}

/// Reads a claim from the API server. `api` is an HTTP address without a slash at the end.
///
/// # Errors
/// Reason in one line.
pub async fn read(api: &str, claim: &Claim) -> Result<ResourceClaim, String> {
    let path = format!("/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}", claim.namespace, claim.name);
    let address: Uri = format!("{api}{path}").parse().map_err(|e| format!("'{path}' is no path: {e}"))?;
    let failed = |why: String| format!("the API server at {api} does not tell of the claim: {why}");
    let asked = async {
        let request = Request::get(address).header("Accept", "application/json").body(Empty::new());
        let (status, body) = plain_http::send(request.map_err(|e| e.to_string())?, CLAIM_MAX_BYTES).await?;
        if !status.is_success() {
            return Err(format!("it answers {status}"));
        }
        serde_json::from_slice(&body).map_err(|e| e.to_string())
    };
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(read) => read.map_err(failed),
        Err(_) => Err(failed(format!("it took more than {} s", PATIENCE.as_secs()))),
    }
}

/// Name of a GPU as a device of a pool: a DNS label.
pub fn device_name(uuid: &str) -> String {
    uuid.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-")
}

impl ResourceClaim {
    /// Devices of this driver that the claim was allocated, each with the CDI devices that the runtime adds to its
    /// containers.
    ///
    /// # Errors
    /// Reason in one line: the name belongs to another claim now, or the claim has no device of this driver, a device
    /// that is not on this node, or no class.
    pub fn prepare(&self, uid: &str, gpus: &[Gpu]) -> Result<Vec<Device>, String> {
        if self.metadata.uid != uid {
            return Err(format!("the claim of this name is another one now, {}", self.metadata.uid));
        }
        let devices = &self.status.allocation.as_ref().ok_or("the claim is not allocated")?.devices;
        let ours = devices.results.iter().filter(|given| given.driver == DRIVER);
        let prepared = ours.map(|given| {
            let gpu = gpus.iter().find(|gpu| device_name(&gpu.uuid) == given.device);
            let gpu = gpu.ok_or_else(|| format!("there is no device {} on this node", given.device))?;
            let class = devices.class_of(&given.request)?;
            let real = (!gpu.is_simulated).then(|| format!("nvidia.com/gpu={}", gpu.uuid));
            Ok(Device {
                request_names: vec![given.request.clone()],
                pool_name: given.pool.clone(),
                device_name: given.device.clone(),
                cdi_device_ids: [class_device(class)].into_iter().chain(real).collect(),
            })
        });
        let prepared: Vec<Device> = prepared.collect::<Result<_, String>>()?;
        if prepared.is_empty() { Err(format!("the claim has no device of {DRIVER}")) } else { Ok(prepared) }
    }
}

impl Allocated {
    /// Class of a request, by the configuration of its device class. The claim's own configuration does not count,
    /// since a tenant writes it.
    fn class_of(&self, request: &str) -> Result<Class, String> {
        // A request with alternatives is named with the chosen one: `gpu/small`.
        let whole = request.split('/').next().unwrap_or(request);
        let is_for_it =
            |config: &&Config| config.requests.is_empty() || config.requests.iter().any(|r| r == request || r == whole);
        let of_classes = self.config.iter().filter(|config| config.source == "FromClass").filter(is_for_it);
        let mut parameters =
            of_classes.filter_map(|config| config.opaque.as_ref()).filter(|opaque| opaque.driver == DRIVER);
        let last =
            parameters.next_back().ok_or_else(|| format!("the device class of request {request} names no class"))?;
        let config: ClassConfig = serde_json::from_value(last.parameters.clone())
            .map_err(|e| format!("the device class of request {request}: {e}"))?;
        match (config.api_version.as_str(), config.kind.as_str()) {
            ("xsched.dev/v1alpha1", "ClassConfig") => Ok(config.class),
            (version, kind) => Err(format!(
                "the device class of request {request} has {version} {kind}: use xsched.dev/v1alpha1 ClassConfig"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::gpus::simulated;

    fn claim(results: Value, config: Value) -> ResourceClaim {
        let allocation = json!({"devices": {"results": results, "config": config}, "nodeSelector": {}});
        serde_json::from_value(json!({"metadata": {"uid": "u1"}, "spec": {}, "status": {"allocation": allocation}}))
            .unwrap()
    }

    fn given(request: &str, device: &str) -> Value {
        json!({"request": request, "driver": DRIVER, "pool": "node-1", "device": device})
    }

    fn config(source: &str, requests: &[&str], class: &str) -> Value {
        let parameters = json!({"apiVersion": "xsched.dev/v1alpha1", "kind": "ClassConfig", "class": class});
        json!({"source": source, "requests": requests, "opaque": {"driver": DRIVER, "parameters": parameters}})
    }

    #[test]
    fn the_class_is_that_of_the_device_class_whatever_the_claim_says() {
        let configs = json!([
            config("FromClass", &["a"], "low"),
            config("FromClass", &["b"], "high"),
            config("FromClaim", &["a"], "system"),
        ]);
        let mut gpus = simulated(2);
        (gpus[1].uuid, gpus[1].is_simulated) = ("GPU-5A0C".to_owned(), false);
        let claim = claim(json!([given("a", "sim-0"), given("b/first", "gpu-5a0c")]), configs);
        let prepared = claim.prepare("u1", &gpus).unwrap();
        let ids: Vec<_> =
            prepared.iter().map(|device| (device.request_names[0].as_str(), &device.cdi_device_ids)).collect();
        let expected = [vec!["xsched.dev/class=low"], vec!["xsched.dev/class=high", "nvidia.com/gpu=GPU-5A0C"]];
        assert_eq!(
            ids,
            [
                ("a", &expected[0].iter().map(ToString::to_string).collect()),
                ("b/first", &expected[1].iter().map(ToString::to_string).collect())
            ]
        );
        assert_eq!((prepared[0].pool_name.as_str(), prepared[0].device_name.as_str()), ("node-1", "sim-0"));
        assert!(claim.prepare("u2", &gpus).unwrap_err().contains("is another one now, u1"));
    }

    #[test]
    fn what_cannot_be_prepared_is_told_in_one_line() {
        let other = json!([{"request": "a", "driver": "gpu.nvidia.com", "pool": "p", "device": "gpu-0"}]);
        let low = || json!([config("FromClass", &[], "low")]);
        for (results, config, why) in [
            (other, low(), "the claim has no device of gpu.xsched.dev"),
            (json!([given("a", "sim-7")]), low(), "there is no device sim-7 on this node"),
            (json!([given("a", "sim-0")]), json!([]), "the device class of request a names no class"),
            (json!([given("a", "sim-0")]), json!([config("FromClaim", &[], "high")]), "of request a names no class"),
            (json!([given("a", "sim-0")]), json!([config("FromClass", &[], "urgent")]), "unknown variant `urgent`"),
        ] {
            let error = claim(results, config).prepare("u1", &simulated(1)).unwrap_err();
            assert!(error.contains(why) && !error.contains('\n'), "{error}");
        }
        let fresh: ResourceClaim = serde_json::from_value(json!({"metadata": {"uid": "u1"}})).unwrap();
        assert_eq!(fresh.prepare("u1", &simulated(1)).unwrap_err(), "the claim is not allocated");
    }

    #[test]
    fn devices_have_names_that_kubernetes_takes() {
        assert_eq!(device_name("GPU-5a0c11e2-0000-0000-0000-00000000000A"), "gpu-5a0c11e2-0000-0000-0000-00000000000a");
        assert_eq!(device_name("MIG-GPU-5a/1/0"), "mig-gpu-5a-1-0");
    }
}
