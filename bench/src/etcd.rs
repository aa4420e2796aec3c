//! A lock on etcd beside the bare transactions and the lock service of the server, over the same gRPC crate.

use std::time::{Duration, Instant};

use http::uri::PathAndQuery;
use leasehold::Locks;
use leasehold_testbed::etcd::Cluster;
use prost::{Message, Oneof};
use tonic::Request;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use crate::summary::{median, micros, percentile, timed};

const TTL: Duration = Duration::from_secs(60);
const ROUNDS: usize = 7;
const PAIRS: usize = 400;
const HAND_OVERS: usize = 300;

pub async fn run() {
    let cluster = Cluster::start().expect("a server of our own");
    println!("etcd on loopback, in memory, 1 task");
    let url = cluster.url();
    let locks = Locks::builder(&url).ttl(TTL).connect().await.expect("leasehold connects");
    let mutex = locks.mutex("k").expect("a name");
    let bare = Bare::connect(&url).await;
    let lease = bare.grant().await;
    let mut spans: [Vec<f64>; 3] = Default::default();
    for _ in 0..ROUNDS {
        spans[0]
            .push(timed(PAIRS, async || mutex.lock().await.expect("granted").release().await.expect("released")).await);
        spans[1].push(timed(PAIRS, async || bare.pair(lease).await).await);
        spans[2].push(
            timed(PAIRS, async || {
                let key = bare.lock("service", lease).await;
                bare.unlock(key).await;
            })
            .await,
        );
    }
    let bare_span = median(&mut spans[1].clone());
    for (name, spans) in ["leasehold", "bare transactions", "lock service"].iter().zip(&mut spans) {
        let span = median(spans);
        println!("  {name:<18} {:>7.0} µs a pair  {:>5.2} x bare", span * 1e6, span / bare_span);
    }

    println!("release to the next holder, one waits");
    let other = Locks::builder(&url).ttl(TTL).connect().await.expect("leasehold connects");
    let (mut ours, mut service) = (Vec::new(), Vec::new());
    for nth in 0..HAND_OVERS {
        let name = format!("turn-{nth}");
        let held = locks.mutex(&name).expect("a name").lock().await.expect("granted");
        let next = other.mutex(&name).expect("a name");
        let waiter = tokio::spawn(async move {
            let guard = next.lock().await.expect("granted");
            (Instant::now(), guard)
        });
        while locks.inspect(&name).await.expect("answered").is_none_or(|view| view.waiters.is_none_or(|w| w.is_empty()))
        {
        }
        tokio::time::sleep(Duration::from_millis(3)).await; // until it watches
        let began = Instant::now();
        held.release().await.expect("released");
        let (at, guard) = waiter.await.expect("no panic");
        ours.push(at - began);
        guard.release().await.expect("released");

        let key = bare.lock(&name, lease).await;
        let (peer, theirs, line) = (bare.clone(), bare.grant().await, name.clone());
        let waiter = tokio::spawn(async move {
            let key = peer.lock(&line, theirs).await;
            (Instant::now(), key)
        });
        tokio::time::sleep(Duration::from_millis(8)).await; // there is no way to see that it waits
        let began = Instant::now();
        bare.unlock(key).await;
        let (at, key) = waiter.await.expect("no panic");
        service.push(at - began);
        bare.unlock(key).await;
    }
    for (name, spans) in [("leasehold", &mut ours), ("lock service", &mut service)] {
        let (half, most) = (percentile(spans, 50), percentile(spans, 99));
        println!("  {name:<18} p50 {:>6.0} µs  p99 {:>6.0} µs", micros(half), micros(most));
    }
}

/// The server's own API, with nothing around it.
#[derive(Clone)]
struct Bare(Grpc<Channel>);

impl Bare {
    async fn connect(url: &str) -> Self {
        let endpoint = Endpoint::from_shared(url.replace("etcd://", "http://")).expect("a URL").tcp_nodelay(true);
        Self(Grpc::new(endpoint.connect().await.expect("bare connects")))
    }

    async fn ask<Q: Message + 'static, A: Message + Default + 'static>(&self, path: &'static str, query: Q) -> A {
        let mut grpc = self.0.clone();
        grpc.ready().await.expect("connected");
        let codec = ProstCodec::<Q, A>::default();
        let answer = grpc.unary(Request::new(query), PathAndQuery::from_static(path), codec).await;
        answer.expect("answered").into_inner()
    }

    async fn grant(&self) -> i64 {
        self.ask::<_, Granted>("/etcdserverpb.Lease/LeaseGrant", Grant { ttl: 600 }).await.id
    }

    /// A key is made on a lease if it is not there, and deleted.
    async fn pair(&self, lease: i64) {
        let put = Put { key: b"bare/k".to_vec(), lease };
        let compare = vec![Compare { target: 1, key: b"bare/k".to_vec(), create_revision: Some(0) }];
        let txn = Txn { compare, success: vec![Op { act: Some(Act::Put(put)) }] };
        assert!(self.ask::<_, Done>("/etcdserverpb.KV/Txn", txn).await.succeeded);
        let delete = Op { act: Some(Act::Delete(Delete { key: b"bare/k".to_vec() })) };
        let txn = Txn { compare: Vec::new(), success: vec![delete] };
        assert!(self.ask::<_, Done>("/etcdserverpb.KV/Txn", txn).await.succeeded);
    }

    async fn lock(&self, name: &str, lease: i64) -> Vec<u8> {
        let lock = Lock { name: name.into(), lease };
        self.ask::<_, Locked>("/v3lockpb.Lock/Lock", lock).await.key
    }

    async fn unlock(&self, key: Vec<u8>) {
        self.ask::<_, Locked>("/v3lockpb.Lock/Unlock", Unlock { key }).await;
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
struct Lock {
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
