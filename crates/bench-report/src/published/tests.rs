use super::*;
use crate::fit;
use crate::summary::coefficient_of_variation;

fn close(a: f64, b: f64, tolerance: f64) {
    assert!((a - b).abs() < tolerance, "{a} is not {b}");
}

#[test]
fn the_vfxt_direct_column_is_534_s_and_3_38_s_for_each_ms() {
    let line = fit::line(&vfxt::direct()).unwrap();
    assert_eq!(format!("{:.0} {:.2}", line.intercept.value, line.slope.value), "534 3.38");
    assert_eq!(format!("{:.2}", line.r2), "0.98");
    // Seconds per millisecond to round trips.
    close(line.slope.times(1000.0).value, 3381.0, 1.0);
}

#[test]
fn the_other_vfxt_columns_do_not_depend_on_distance() {
    let fit_of = |seconds: fn(&vfxt::Region) -> f64| {
        fit::line(&vfxt::REGIONS.each_ref().map(|r| (r.rtt_ms, seconds(r)))).unwrap()
    };
    let (cold, warm) = (fit_of(|r| r.cold), fit_of(|r| r.warm));
    assert!(!cold.slope.is_significant() && !warm.slope.is_significant());
    close(cold.intercept.value, 392.3, 0.1);
    close(warm.intercept.value, 328.3, 0.1);
    let noise = coefficient_of_variation(&vfxt::REGIONS.each_ref().map(|r| r.warm)).unwrap();
    close(noise, 0.098, 0.001);
}

/// Each pair of throughput and latency is the number of workers, over again.
#[test]
fn aistores_latencies_follow_from_its_throughputs() {
    for run in [aistore::DIRECT, aistore::WARM, aistore::LARGE] {
        let objects_per_second = run.throughput_gib_s * (1u64 << 30) as f64 / aistore::OBJECT_BYTES as f64;
        let in_flight = objects_per_second * run.latency_ms / 1000.0;
        close(in_flight, f64::from(aistore::WORKERS), 2.0);
    }
}

/// Each total over each rate is a whole number of milliseconds: the originals were timed so.
#[test]
fn azures_writes_are_totals_over_whole_milliseconds() {
    for (each, total, rates) in azure_hpc_io::SFMW.iter().chain(&azure_hpc_io::MFMW) {
        assert_eq!(each * 20.0, *total as f64);
        for rate in rates.iter().flatten() {
            let ms = *total as f64 / rate * 1000.0;
            let printed = *total as f64 / (ms.round() / 1000.0);
            close(printed, *rate, 0.001);
        }
    }
}

/// Bytes over rate is the printed time, for each node and test.
#[test]
fn sobs_rates_belong_to_its_times() {
    for run in &tryggve::SOB {
        for node in &run.nodes {
            let tests = [
                (10240.0, node.write_1),
                (10240.0, node.read_1),
                (500.0, node.write_2),
                (6400.0, node.write_3),
                (1024.0, node.write_4),
            ];
            for (mib, timing) in tests {
                assert!((mib / timing.rate - timing.seconds).abs() <= 1.0, "{} {timing:?}", node.name);
            }
            close(1024.0 / node.read_4.rate, node.read_4.seconds, 0.06);
        }
    }
}

/// Bytes moved over the aggregate is the time that fio printed for the longest job.
#[test]
fn maprs_reads_move_what_they_say() {
    let seconds = [42.366, 60.009, 60.008, 60.004, 52.074, 54.895, 42.781];
    for (read, seconds) in mapr::READS.iter().zip(seconds) {
        close(read.moved_mib as f64 * 1024.0 / read.aggregate as f64, seconds, 0.01);
        assert!(
            read.slowest * read.mounts <= read.aggregate && read.fastest * read.mounts >= read.aggregate - 3
        );
    }
}

#[test]
fn the_published_tables_have_a_cell_for_each_column() {
    let mut tables = vec![
        vfxt::results(),
        aistore::results(),
        aistore::large(),
        azure_hpc_io::read(),
        azure_hpc_io::nodes(),
        azure_hpc_io::sfmw(),
        azure_hpc_io::mfmw(),
        mapr::results(),
        tryggve::tests(),
        tryggve::partitions(),
        tryggve::caw(),
        tryggve::wgs(),
        tryggve::link(),
    ];
    tables.extend(tryggve::SOB.iter().map(tryggve::Run::table));
    for table in tables {
        for row in &table.rows {
            assert_eq!(row.cells.len(), table.columns.len(), "{}", table.title);
        }
    }
    assert_eq!(tryggve::caw().rows[0].cells[1], Cell::text("23m 58s"));
    assert_eq!(tryggve::wgs().rows[5].cells[1], Cell::text("11m 13s"));
    assert!(azure_hpc_io::sfmw_series().len() == 2 && azure_hpc_io::mfmw_series().len() == 3);
}
