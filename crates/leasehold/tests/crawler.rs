//! The crawler of the examples, on a file and on a Redis server: it asserts what it claims.
//!
//! Without a harness, because its workers are processes of this very program.
#![expect(unreachable_pub, reason = "an example's `main` is public so that this file can call it")]

#[path = "../examples/crawler.rs"]
mod crawler;

use leasehold_testbed::redis::Server;

fn main() -> leasehold::Result<()> {
    if crawler::is_worker() {
        return crawler::main();
    }
    println!("on a file");
    crawler::on_a_file(crawler::crawl)?;
    println!("on a Redis server");
    let server = Server::start().expect("redis-server is installed");
    crawler::crawl(&server.url())
}
