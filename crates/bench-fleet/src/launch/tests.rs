use super::*;

fn detect_in<const N: usize>(variables: [(&str, &str); N]) -> Result<Launch> {
    detect(&FleetOptions { environment: variables.into(), ..FleetOptions::default() }, "here")
}

fn file(launch: Result<Launch>) -> (u32, u32, String, bool) {
    match launch {
        Ok(Launch::Started { rank, size, meeting: Meeting::File { path, one_machine }, .. }) => {
            (rank, size, path.display().to_string(), one_machine)
        }
        other => panic!("{other:?}"),
    }
}

const SRUN: [(&str, &str); 6] = [
    ("SLURM_JOB_ID", "17"),
    ("SLURM_STEP_ID", "2"),
    ("SLURM_PROCID", "1"),
    ("SLURM_NTASKS", "4"),
    ("SLURM_STEP_NUM_TASKS", "4"),
    ("SLURM_STEP_NUM_NODES", "2"),
];

#[test]
fn without_a_launcher_a_process_is_alone() {
    assert_eq!(detect_in([("HOME", "/root")]).unwrap(), Launch::Alone);
}

#[test]
fn open_mpi_is_found_and_its_ranks_meet_near_by_if_they_are_on_one_machine() {
    let found = file(detect_in([
        ("OMPI_COMM_WORLD_RANK", "2"),
        ("OMPI_COMM_WORLD_SIZE", "4"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
        ("PMIX_NAMESPACE", "19871.82593"),
    ]));
    assert_eq!((found.0, found.1, found.3), (2, 4, true));
    assert!(found.2.contains("mpi1987182593-4"), "{}", found.2);
    assert!(found.2.starts_with(&std::env::temp_dir().display().to_string()), "{}", found.2);
}

#[test]
fn hydra_on_two_machines_meets_in_the_working_directory() {
    let found = file(detect_in([("PMI_RANK", "0"), ("PMI_SIZE", "4"), ("MPI_LOCALNRANKS", "2")]));
    assert_eq!((found.0, found.1, found.3), (0, 4, false));
    assert!(found.2.starts_with("./.forebay-bench-"), "{}", found.2);
}

#[test]
fn srun_is_found_by_its_step() {
    let found = file(detect_in(SRUN));
    assert_eq!((found.0, found.1, found.3), (1, 4, false));
    assert!(found.2.contains("slurm17x2-4"), "{}", found.2);
}

#[test]
fn a_batch_script_without_srun_is_one_process() {
    let launch = detect_in([("SLURM_JOB_ID", "17"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]);
    assert_eq!(launch.unwrap(), Launch::Alone);
}

#[test]
fn mpirun_in_a_slurm_job_counts_and_srun_with_a_pmi_plugin_is_srun() {
    let with = |rank, size| {
        let mut variables: Vec<(&str, &str)> = SRUN.to_vec();
        variables.extend([("PMI_RANK", rank), ("PMI_SIZE", size)]);
        let variables: [(&str, &str); 8] = variables.try_into().unwrap();
        file(detect_in(variables))
    };
    assert_eq!((with("5", "8").0, with("5", "8").1), (5, 8));
    assert!(with("5", "8").2.contains("mpi17-8"));
    assert!(with("1", "4").2.contains("slurm17x2-4"));
}

#[test]
fn our_own_variables_come_before_all() {
    let launch = detect_in([
        (RANK, "3"),
        (SIZE, "4"),
        (COORDINATOR, "a:1,b:2"),
        ("SLURM_PROCID", "0"),
        ("PMI_RANK", "0"),
        ("PMI_SIZE", "2"),
    ]);
    let meeting = Meeting::At(vec!["a:1".into(), "b:2".into()]);
    assert_eq!(launch.unwrap(), Launch::Started { launcher: "environment", rank: 3, size: 4, meeting });
    assert!(detect_in([(RANK, "4"), (SIZE, "4"), (COORDINATOR, "a:1")]).is_err());
    assert!(detect_in([(RANK, "1"), (SIZE, "4")]).is_err());
    assert!(detect_in([(RANK, "x"), (SIZE, "4"), (COORDINATOR, "a:1")]).is_err());
}

#[test]
fn a_launcher_that_contradicts_itself_or_the_options_is_refused() {
    assert!(detect_in([("PMI_RANK", "4"), ("PMI_SIZE", "4")]).is_err());
    assert!(detect_in([("PMI_RANK", "0"), ("PMI_SIZE", "400000")]).is_err());
    let mut options = FleetOptions { environment: SRUN.into(), procs: Some(2), ..FleetOptions::default() };
    let error = detect(&options, "here").unwrap_err().to_string();
    assert!(error.contains("srun has started 4 ranks already"), "{error}");
    options.hosts = Some("a".into());
    options.environment = Environment::default();
    assert!(detect(&options, "here").is_err());
}

#[test]
fn one_task_of_srun_may_start_processes_of_its_own() {
    let mut variables = SRUN;
    variables[2].1 = "0";
    variables[4].1 = "1";
    let options = FleetOptions { environment: variables.into(), procs: Some(2), ..FleetOptions::default() };
    let starts = vec![RankStart { rank: 1, host: None }];
    assert_eq!(detect(&options, "here").unwrap(), Launch::Start(starts));
}

fn starts(hosts: &str) -> Result<Vec<(u32, Option<String>)>> {
    let options = FleetOptions { hosts: Some(hosts.into()), ..FleetOptions::default() };
    match detect(&options, "here")? {
        Launch::Start(starts) => Ok(starts.into_iter().map(|s| (s.rank, s.host)).collect()),
        Launch::Alone => Ok(Vec::new()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn hosts_get_ranks_in_order_and_this_one_counts_rank_0() {
    let to = |name: &str| Some(name.to_owned());
    assert_eq!(starts("a,b:2").unwrap(), [(1, to("a")), (2, to("b")), (3, to("b"))]);
    assert_eq!(starts("here:2,b").unwrap(), [(1, None), (2, to("b"))]);
    assert_eq!(starts("b,localhost,here.example.org").unwrap(), [(1, to("b")), (2, None)]);
    assert_eq!(starts("here").unwrap(), []);
    assert_eq!(starts("me@n1,[fd00::1]:1").unwrap(), [(1, to("me@n1")), (2, to("fd00::1"))]);
}

#[test]
fn hosts_that_are_none_are_refused() {
    for wrong in
        ["", ",", "-oProxyCommand=x", "a:0", "a:x", "a b", "a;b", "[fd00::1", "[::1]x", "a:5000", "a$(b)"]
    {
        assert!(starts(wrong).is_err(), "{wrong:?}");
    }
    assert!(starts(&"a:4000,".repeat(3)).is_err());
    let options = FleetOptions { procs: Some(0), ..FleetOptions::default() };
    assert!(detect(&options, "here").is_err());
    let options = FleetOptions { procs: Some(5000), ..FleetOptions::default() };
    assert!(detect(&options, "here").is_err());
}

#[test]
fn a_word_survives_the_shell() {
    for word in ["plain", "two words", "it's", "$HOME `id` \\ \" ' * ;", ""] {
        let mut shell = std::process::Command::new("sh");
        let output = shell.arg("-c").arg(format!("printf %s {}", quote(word))).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
    }
}
