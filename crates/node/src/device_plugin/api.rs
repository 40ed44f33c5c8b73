//! The messages of the kubelet's device plugin API v1beta1, with the fields that the plugin uses. Numbers and types are those of
//! `k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto` (1.35).

use prost::Message;

/// The version in `Register` and in the names of the services.
pub(super) const VERSION: &str = "v1beta1";

/// The kubelet's socket, in the directory of the plugins' sockets.
pub(super) const KUBELET_SOCKET: &str = "kubelet.sock";

/// The call by which a plugin registers with the kubelet.
pub(super) const REGISTER: &str = "/v1beta1.Registration/Register";

/// The health of a device.
pub(super) const HEALTHY: &str = "Healthy";
pub(super) const UNHEALTHY: &str = "Unhealthy";

#[derive(Clone, PartialEq, Message)]
pub(super) struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Options {
    #[prost(bool, tag = "1")]
    pub(super) pre_start_required: bool,
    #[prost(bool, tag = "2")]
    pub(super) get_preferred_allocation_available: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RegisterRequest {
    #[prost(string, tag = "1")]
    pub(super) version: String,
    /// The file name of the plugin's socket.
    #[prost(string, tag = "2")]
    pub(super) endpoint: String,
    #[prost(string, tag = "3")]
    pub(super) resource_name: String,
    #[prost(message, optional, tag = "4")]
    pub(super) options: Option<Options>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ListAndWatchResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) devices: Vec<Device>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Device {
    /// At most 63 characters.
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(string, tag = "2")]
    pub(super) health: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AllocateRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) container_requests: Vec<ContainerAllocateRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerAllocateRequest {
    #[prost(string, repeated, tag = "1")]
    pub(super) devices_ids: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AllocateResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) container_responses: Vec<ContainerAllocateResponse>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerAllocateResponse {
    #[prost(message, repeated, tag = "2")]
    pub(super) mounts: Vec<Mount>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Mount {
    #[prost(string, tag = "1")]
    pub(super) container_path: String,
    #[prost(string, tag = "2")]
    pub(super) host_path: String,
    #[prost(bool, tag = "3")]
    pub(super) read_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PreStartContainerRequest {
    #[prost(string, repeated, tag = "1")]
    pub(super) devices_ids: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PreferredAllocationRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) container_requests: Vec<ContainerPreferredAllocationRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerPreferredAllocationRequest {
    #[prost(string, repeated, tag = "1")]
    pub(super) available: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(super) must_include: Vec<String>,
    #[prost(int32, tag = "3")]
    pub(super) size: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PreferredAllocationResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) container_responses: Vec<ContainerPreferredAllocationResponse>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerPreferredAllocationResponse {
    #[prost(string, repeated, tag = "1")]
    pub(super) ids: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_messages_as_the_kubelet_expects() {
        let request = RegisterRequest {
            version: VERSION.to_owned(),
            endpoint: "a".to_owned(),
            resource_name: "b/c".to_owned(),
            options: Some(Options { pre_start_required: true, get_preferred_allocation_available: false }),
        };
        assert_eq!(request.encode_to_vec(), b"\x0a\x07v1beta1\x12\x01a\x1a\x03b/c\x22\x02\x08\x01");
        let mount = Mount { container_path: "/a".to_owned(), host_path: "/b".to_owned(), read_only: true };
        let answer = ContainerAllocateResponse { mounts: vec![mount] };
        assert_eq!(answer.encode_to_vec(), b"\x12\x0a\x0a\x02/a\x12\x02/b\x18\x01");
    }
}
