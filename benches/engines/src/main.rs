//! What the record costs on the disk beside embedded engines that hold the same packed bytes: a journal entry each second, which
//! is on the disk after five, and a block of each series each hour, which replaces them.
//!
//! `cargo run --release --manifest-path benches/engines/Cargo.toml`

#[path = "../../../tests/record/random.rs"]
mod random;

use std::error::Error;
use std::fs;
use std::path::Path;

use random::{MIX, Random};
use redb::{Database, Durability, TableDefinition};
use tollgate::record::{Kind, Record, Second, Series, Settings};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const HOUR: u64 = 3_600;
const HOURS: u64 = 6;
/// Seconds after which what was written is on the disk.
const SYNC: u64 = 5;
/// A midnight.
const START: u64 = 20_011 * 86_400;
/// What cannot be packed any more.
fn bytes(random: &mut Random, count: usize) -> Vec<u8> {
    (0..count).map(|_| random.below(256) as u8).collect()
}

/// How large packed things are.
struct Sizes {
    second: usize,
    block: usize,
}

fn size(path: &Path) -> Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let file = entry.metadata()?;
        total += if file.is_dir() {
            size(&entry.path())?
        } else {
            file.len()
        };
    }
    Ok(total)
}

/// Bytes that this process has handed to the disk.
fn written() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/io")?;
    let line = text.lines().find_map(|line| line.strip_prefix("wchar: "));
    Ok(line.ok_or("no figure")?.parse()?)
}

/// Measures what is done in a folder.
fn told(name: &str, run: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let before = written()?;
    run(folder.path())?;
    let points = (MIX.len() as u64 * HOURS * HOUR) as f64;
    let kept = size(folder.path())? as f64 / points;
    let written = (written()? - before) as f64 / points;
    println!("| {name} | {kept:.3} | {written:.2} |");
    Ok(())
}

fn own(folder: &Path) -> Result<()> {
    let record = Record::open(&Settings {
        folder: Some(folder.to_owned()),
        most_bytes: 1 << 30,
    })?;
    let number = |place: usize| {
        let (name, labels) = (format!("things_{place}"), Vec::new());
        record.number(&Series {
            name,
            labels,
            kind: Kind::Counter,
            decimals: 0,
        })
    };
    let numbers: Option<Vec<u32>> = (0..MIX.len()).map(number).collect();
    let numbers = numbers.ok_or("too many series")?;
    let mut random = Random(42);
    // The last hour is written when two minutes of the next are over.
    for at in START..START + HOURS * HOUR + 130 {
        let values = MIX
            .iter()
            .zip(&numbers)
            .map(|(mean, number)| (*number, random.poisson(*mean)));
        let values = values.filter(|(_, value)| *value > 0).collect();
        record.add(Second { at, values });
        record.keep()?;
    }
    record.leave()?;
    Ok(())
}

const SECONDS: TableDefinition<u64, &[u8]> = TableDefinition::new("seconds");
const BLOCKS: TableDefinition<(u32, u64), &[u8]> = TableDefinition::new("blocks");

fn redb(folder: &Path, sizes: &Sizes) -> Result<()> {
    let mut database = Database::create(folder.join("record"))?;
    let mut random = Random(7);
    for at in START..START + HOURS * HOUR {
        let mut transaction = database.begin_write()?;
        let synced = at % SYNC == 0;
        transaction.set_durability(if synced {
            Durability::Immediate
        } else {
            Durability::None
        })?;
        {
            let mut seconds = transaction.open_table(SECONDS)?;
            seconds.insert(at, &*bytes(&mut random, sizes.second))?;
            if (at + 1) % HOUR == 0 {
                let mut blocks = transaction.open_table(BLOCKS)?;
                for series in 0..MIX.len() as u32 {
                    blocks.insert((series, at - at % HOUR), &*bytes(&mut random, sizes.block))?;
                }
                seconds.retain(|_, _| false)?;
            }
        }
        transaction.commit()?;
    }
    // What it does by itself never gives space back.
    database.compact()?;
    Ok(())
}

fn fjall(folder: &Path, sizes: &Sizes) -> Result<()> {
    let database = fjall::Database::builder(folder).open()?;
    let seconds = database.keyspace("seconds", fjall::KeyspaceCreateOptions::default)?;
    let blocks = database.keyspace("blocks", fjall::KeyspaceCreateOptions::default)?;
    let mut random = Random(7);
    for at in START..START + HOURS * HOUR {
        seconds.insert(at.to_be_bytes(), bytes(&mut random, sizes.second))?;
        if (at + 1) % HOUR == 0 {
            let hour = at - at % HOUR;
            for series in 0..MIX.len() as u32 {
                let key = [&series.to_be_bytes()[..], &hour.to_be_bytes()].concat();
                blocks.insert(key, bytes(&mut random, sizes.block))?;
            }
            for second in hour..hour + HOUR {
                seconds.remove(second.to_be_bytes())?;
            }
        }
        if at % SYNC == 0 {
            database.persist(fjall::PersistMode::SyncData)?;
        }
    }
    seconds.rotate_memtable_and_wait()?;
    blocks.rotate_memtable_and_wait()?;
    Ok(())
}

fn main() -> Result<()> {
    println!("| engine | bytes kept a point | bytes written a point |\n|---|---|---|");
    let mut sizes = Sizes {
        second: 0,
        block: 0,
    };
    told("own files", |folder| {
        own(folder)?;
        let blocks = HOURS as usize * MIX.len();
        sizes.block = size(&folder.join("1s"))? as usize / blocks;
        Ok(())
    })?;
    // A number and a value of each series that did something.
    sizes.second = 2 * MIX.iter().filter(|mean| **mean >= 1.0).count();
    told("redb", |folder| redb(folder, &sizes))?;
    told("fjall", |folder| fjall(folder, &sizes))
}
