//! Our figures beside those of the bare store and of the peers, in one run, as ratios.

mod contender;
mod pairs;

use leasehold_testbed::redis::Server;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let server = Server::start().expect("a server");
    let contenders = contender::Contender::all(&server.url()).await;
    if let Some(name) = std::env::args().nth(1) {
        let (_, contender) = contenders.iter().find(|(known, _)| *known == name).expect("a contender");
        let mut lock = contender.lock("solo");
        for _ in 0..20 { lock.pair(async || ()).await; }
        eprintln!("MARK");
        let began = std::time::Instant::now();
        let n: u32 = std::env::var("N").map_or(3000, |n| n.parse().unwrap());
        let c = contender.clone();
        tokio::spawn(async move { let mut lock = c.lock("solo"); for _ in 0..n {
            lock.pair(async || ()).await;
        }}).await.unwrap();
        println!("{name}: {:?} a pair", began.elapsed() / n);
        return;
    }
    pairs::run(&contenders).await;
}
