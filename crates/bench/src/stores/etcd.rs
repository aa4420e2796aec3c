//! etcd, with its data in memory, beside the bare transactions and beside the lock service of the server, over the same gRPC crate.

use std::sync::Arc;

use futures_core::future::BoxFuture;
use http::uri::PathAndQuery;
use leasehold::clock::{Clock, Timer};
use leasehold_testbed::etcd::Cluster;
use prost::{Message, Oneof};
use tonic::Request;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::Store;
use crate::contender::{Contender, Lock, POLL, Rival};
use crate::sample::BARE;

pub(super) struct Etcd(Cluster);

impl Etcd {
    pub(super) fn start() -> Self {
        Self(Cluster::start().expect("a server of our own"))
    }

    fn address(&self) -> String {
        self.0.url().replace("etcd://", "http://")
    }
}

impl Store for Etcd {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn server(&self) -> String {
        let said = self.0.servers()[0].cli(&["endpoint", "status", "--write-out=fields"]);
        let version = said.lines().find_map(|line| line.strip_prefix("\"Version\" : ")).unwrap_or_default();
        format!("etcd {}, in memory", version.trim_matches('"'))
    }

    fn url(&self) -> String {
        self.0.url()
    }

    fn bare(&self) -> BoxFuture<'_, Rival> {
        let address = self.address();
        Box::pin(Rival::here(BARE, move || {
            let address = address.clone();
            Box::pin(async move { Bare(Link::connect(address).await) })
        }))
    }

    fn peers(&self) -> BoxFuture<'_, Vec<Rival>> {
        let address = self.address();
        Box::pin(async move {
            let service = Rival::here("v3lock", move || {
                let address = address.clone();
                Box::pin(async move { Service(Link::connect(address).await) })
            });
            vec![service.await]
        })
    }

    /// Messages, of which a request is one, and so is each keep-alive.
    fn requests(&self) -> Option<u64> {
        self.0.servers()[0].counted(|counter| counter.starts_with("grpc_server_msg_received_total{"))
    }
}

/// The server's own API, with nothing around it, and a lease.
#[derive(Clone)]
struct Link {
    grpc: Grpc<Channel>,
    lease: i64,
}

impl Link {
    async fn connect(address: String) -> Self {
        let endpoint = Endpoint::from_shared(address).expect("a URL").tcp_nodelay(true);
        let mut link = Self { grpc: Grpc::new(endpoint.connect().await.expect("bare connects")), lease: 0 };
        link.lease = link.ask::<_, Granted>("/etcdserverpb.Lease/LeaseGrant", Grant { ttl: 3600 }).await.id;
        link
    }

    async fn ask<Q: Message + 'static, A: Message + Default + 'static>(&self, path: &'static str, query: Q) -> A {
        let mut grpc = self.grpc.clone();
        grpc.ready().await.expect("connected");
        let codec = ProstCodec::<Q, A>::default();
        let answer = grpc.unary(Request::new(query), PathAndQuery::from_static(path), codec).await;
        answer.expect("answered").into_inner()
    }
}

/// A key is made on a lease if it is not there, and deleted.
struct Bare(Link);

struct BareLock(Link, Vec<u8>);

impl Contender for Bare {
    fn lock(&self, key: &str) -> Box<dyn Lock> {
        Box::new(BareLock(self.0.clone(), format!("bare/{key}").into_bytes()))
    }
}

impl Lock for BareLock {
    fn take(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let Self(link, key) = self;
            let put = Put { key: key.clone(), lease: link.lease };
            let compare = vec![Compare { target: 1, key: key.clone(), create_revision: Some(0) }];
            let txn = Txn { compare, success: vec![Op { act: Some(Act::Put(put)) }] };
            while !link.ask::<_, Done>("/etcdserverpb.KV/Txn", txn.clone()).await.succeeded {
                Timer::on_callers_runtime(Clock::boot()).sleep(POLL).await;
            }
        })
    }

    fn give(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let delete = Op { act: Some(Act::Delete(Delete { key: self.1.clone() })) };
            let txn = Txn { compare: Vec::new(), success: vec![delete] };
            assert!(self.0.ask::<_, Done>("/etcdserverpb.KV/Txn", txn).await.succeeded);
        })
    }
}

/// The lock service of the server. Who locks with the same lease is the same holder, so that each lock has one.
struct Service(Link);

struct ServiceLock {
    link: Arc<Link>,
    lease: Option<i64>,
    name: Vec<u8>,
    key: Vec<u8>,
}

impl Contender for Service {
    fn lock(&self, key: &str) -> Box<dyn Lock> {
        let name = format!("service/{key}").into_bytes();
        Box::new(ServiceLock { link: Arc::new(self.0.clone()), lease: None, name, key: Vec::new() })
    }
}

impl Lock for ServiceLock {
    fn take(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let lease = match self.lease {
                Some(lease) => lease,
                None => self.link.ask::<_, Granted>("/etcdserverpb.Lease/LeaseGrant", Grant { ttl: 3600 }).await.id,
            };
            self.lease = Some(lease);
            let lock = Wish { name: self.name.clone(), lease };
            self.key = self.link.ask::<_, Locked>("/v3lockpb.Lock/Lock", lock).await.key;
        })
    }

    fn give(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let key = std::mem::take(&mut self.key);
            self.link.ask::<_, Locked>("/v3lockpb.Lock/Unlock", Unlock { key }).await;
        })
    }
}

#[derive(Clone, PartialEq, Message)]
struct Grant {
    #[prost(int64, tag = "1")]
    ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Granted {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Compare {
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(int64, optional, tag = "5")]
    create_revision: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Put {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(int64, tag = "3")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Delete {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Op {
    #[prost(oneof = "Act", tags = "2, 3")]
    act: Option<Act>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Act {
    #[prost(message, tag = "2")]
    Put(Put),
    #[prost(message, tag = "3")]
    Delete(Delete),
}

#[derive(Clone, PartialEq, Message)]
struct Txn {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<Op>,
}

#[derive(Clone, PartialEq, Message)]
struct Done {
    #[prost(bool, tag = "2")]
    succeeded: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Wish {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(int64, tag = "2")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Locked {
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Unlock {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}
