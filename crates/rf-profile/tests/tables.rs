//! Tables in the documented formats of AMD's tools, with the column names of their releases.

#![expect(
    clippy::unwrap_used,
    clippy::float_cmp,
    reason = "a test may panic, and values are read back exactly"
)]

use rf_profile::Error;
use rf_profile::tables::*;

fn table(text: &str) -> Table {
    Table::parse(text, "recorded").unwrap()
}

/// rocprofv3 of ROCm 7.0 (rocprofiler-sdk 1.0.0).
const KERNEL_TRACE_7: &str = r#""Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count","Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y","Grid_Size_Z"
"KERNEL_DISPATCH","Agent 4",1,1,834304,1,10,"void addition_kernel<float>(float*, float const*, float const*, int, int)",1,1550151853029637,1550151853042437,0,0,8,0,16,64,1,1,1024,1024,1
"KERNEL_DISPATCH","Agent 4",1,1,834304,2,10,"void addition_kernel<float>(float*, float const*, float const*, int, int)",2,1550151853050000,1550151853060000,0,0,8,0,16,64,1,1,1024,1024,1
"KERNEL_DISPATCH","Agent 4",1,1,834304,3,11,"copy",3,1550151853070000,1550151853071000,512,64,32,0,16,256,1,1,256,1,1
"#;

/// rocprofv3 of ROCm 6.2.
const KERNEL_TRACE_6: &str = r#""Kind","Agent_Id","Queue_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp","Private_Segment_Size","Group_Segment_Size","Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y","Grid_Size_Z"
"KERNEL_DISPATCH",1,139690710949888,15,1,5,"f(int, int)",1,1000,3500,16,1024,64,2,1,1024,2,1
"#;

#[test]
fn kernel_traces_of_rocprofv3_are_read() {
    let trace = table(KERNEL_TRACE_7);
    assert!(KernelRow::fits(&trace) && !CounterRow::fits(&trace) && !StatsRow::fits(&trace));
    let rows = KernelRow::all(&trace).unwrap();
    assert_eq!(rows[0].duration_ns, 12800);
    assert_eq!((&*rows[0].agent, rows[0].vgprs, rows[0].sgprs), ("Agent 4", Some(8), Some(16)));
    assert_eq!((rows[0].workgroup_threads, rows[0].grid_threads), (Some(64), Some(1 << 20)));

    let summaries = summarize_kernels(&rows);
    assert!(summaries[0].name.starts_with("void addition_kernel<float>(float*, "));
    assert_eq!((summaries[0].us.count, summaries[0].us.total), (2, 22.8));
    assert!((summaries[0].share - 22.8 / 23.8).abs() < 1e-9);
    assert_eq!(summaries[1].scratch_bytes, Some(64));
    let shown = kernel_table(&summaries);
    assert!(shown.lines().nth(1).unwrap().contains("95.8%"), "{shown}");

    let rows = KernelRow::all(&table(KERNEL_TRACE_6)).unwrap();
    assert_eq!((rows[0].duration_ns, &*rows[0].agent), (2500, "1"));
    assert_eq!((rows[0].scratch_bytes, rows[0].lds_bytes), (Some(16), Some(1024)));
    assert_eq!((rows[0].workgroup_threads, rows[0].vgprs), (Some(128), None));
}

#[test]
fn tables_converted_from_rocpd_have_one_more_column() {
    let text: String = KERNEL_TRACE_7
        .lines()
        .enumerate()
        .flat_map(|(line, text)| [if line == 0 { "\"Guid\"," } else { "\"0-1\"," }, text, "\n"])
        .collect();
    assert_eq!(
        KernelRow::all(&table(&text)).unwrap(),
        KernelRow::all(&table(KERNEL_TRACE_7)).unwrap()
    );
    assert!(!CounterRow::fits(&table(&text)));
}

#[test]
fn other_tables_of_rocprofv3_are_read() {
    let stats = "\"Name\",\"Calls\",\"TotalDurationNs\",\"AverageNs\",\"Percentage\",\"MinNs\",\"MaxNs\",\"StdDev\"\n\
                 \"g(int, int)\",4,8000,2000.000000,100.00,1500,2500,400.5\n";
    let rows = StatsRow::all(&table(stats)).unwrap();
    assert_eq!((rows[0].calls, rows[0].max_ns), (4, Some(2500.0)));
    let summary = KernelSummary::from(&rows[0]);
    assert_eq!((summary.us.total, summary.us.min, summary.share), (8.0, 1.5, 1.0));

    let api = "\"Domain\",\"Function\",\"Process_Id\",\"Thread_Id\",\"Correlation_Id\",\"Start_Timestamp\",\"End_Timestamp\"\n\
               \"HIP_RUNTIME_API_EXT\",\"hipLaunchKernel\",834304,834305,17,1000,5000\n";
    let rows = ApiRow::all(&table(api)).unwrap();
    assert_eq!(
        (&*rows[0].function, rows[0].thread, rows[0].end_ns),
        ("hipLaunchKernel", Some(834_305), 5000)
    );

    let copies = "\"Kind\",\"Direction\",\"Stream_Id\",\"Source_Agent_Id\",\"Destination_Agent_Id\",\"Correlation_Id\",\"Start_Timestamp\",\"End_Timestamp\"\n\
                  \"MEMORY_COPY\",\"MEMORY_COPY_HOST_TO_DEVICE\",1,\"Agent 0\",\"Agent 4\",3,100,200\n";
    let rows = CopyRow::all(&table(copies)).unwrap();
    assert_eq!(
        (&*rows[0].direction, &*rows[0].destination),
        ("MEMORY_COPY_HOST_TO_DEVICE", "Agent 4")
    );

    let allocations = "\"Kind\",\"Operation\",\"Agent_Id\",\"Allocation_Size\",\"Address\",\"Correlation_Id\",\"Start_Timestamp\",\"End_Timestamp\"\n\
                       \"MEMORY_ALLOCATION\",\"MEMORY_ALLOCATION_ALLOCATE\",\"Agent 4\",4194304,\"0x7f0\",5,10,20\n";
    let rows = AllocationRow::all(&table(allocations)).unwrap();
    assert_eq!((rows[0].bytes, &*rows[0].address), (4 << 20, "0x7f0"));

    let samples = "\"Sample_Timestamp\",\"Exec_Mask\",\"Dispatch_Id\",\"Instruction\",\"Instruction_Comment\",\"Correlation_Id\"\n\
                   5,18446744073709551615,1,\"v_add_f32 v0, v1, v2\",\"a.hip:3\",1\n";
    assert_eq!(PcSample::all(&table(samples)).unwrap()[0].instruction, "v_add_f32 v0, v1, v2");
}

/// rocprof with `-i`, `--stats` and `--timestamp on`.
const ROCPROF_1: &str = r#""Index","KernelName","gpu-id","queue-id","queue-index","pid","tid","grd","wgr","lds","scr","arch_vgpr","accum_vgpr","sgpr","wave_size","sig","obj","SQ_WAVES","FETCH_SIZE","WRITE_SIZE","DispatchNs","BeginNs","EndNs","CompleteNs","DurationNs"
0,"f(float*, int)",2,0,0,15,15,1024,64,512,0,24,4,16,32,"0x0","0x7f",16,2048,1024,100,1000,3000,3100,2000
1,"g",2,0,1,15,15,64,64,0,0,None,None,None,32,"0x0","0x7f",1,0,0,None,None,None,None,None
"#;

#[test]
fn results_of_rocprof_hold_kernels_and_counters() {
    let results = table(ROCPROF_1);
    let kernels = KernelRow::all(&results).unwrap();
    assert_eq!(kernels.len(), 1, "a kernel without times is unfinished");
    assert_eq!((kernels[0].duration_ns, kernels[0].grid_threads), (2000, Some(1024)));
    assert_eq!((kernels[0].vgprs, kernels[0].accum_vgprs), (Some(24), Some(4)));

    let rows = CounterRow::all(&results).unwrap();
    let counters: Vec<_> = rows.iter().take(3).map(|row| (&*row.counter, row.value)).collect();
    assert_eq!(counters, [("SQ_WAVES", 16.0), ("FETCH_SIZE", 2048.0), ("WRITE_SIZE", 1024.0)]);
    let profile = CounterProfile::new(&rows).unwrap();
    let bandwidth = profile.bandwidth_bytes_per_s("f(float*, int)", &kernels).unwrap();
    assert!((bandwidth - 3072.0 * 1024.0 / 2e-6).abs() < 1.0, "{bandwidth}");
    // rocprof without --stats writes no quotes.
    let bare = ROCPROF_1.replace('"', "");
    assert_eq!(KernelRow::all(&table(&bare)).unwrap(), kernels);
}

#[test]
fn tables_of_the_rocprofv2_file_plugin_are_read() {
    let text = "Dispatch_ID,GPU_ID,Queue_ID,PID,TID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Scratch_Per_Workitem,Arch_VGPR,Accum_VGPR,SGPR,Wave_Size,Kernel_Name,Start_Timestamp,End_Timestamp,Correlation_ID,SQ_WAVES\n\
                1,1,1,7,7,256,64,0,0,8,0,16,32,\"f(int, int)\",1000,2000,0,4.000000\n";
    let kernels = KernelRow::all(&table(text)).unwrap();
    assert_eq!((&*kernels[0].name, kernels[0].duration_ns), ("f(int, int)", 1000));
    assert_eq!(CounterRow::all(&table(text)).unwrap()[0].value, 4.0);
    let calls = "Domain,Function,Start_Timestamp,End_Timestamp,Correlation_ID\n\n\
                 HIP_API,hipMalloc,1,2,3\n";
    assert_eq!(ApiRow::all(&table(calls)).unwrap()[0].function, "hipMalloc");
}

#[test]
fn tables_of_rocprof_compute_are_read() {
    let pmc = "Dispatch_ID,Kernel_Name,GPU_ID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Scratch_Per_Workitem,Arch_VGPR,Accum_VGPR,SGPR,wave_size,obj,SQ_WAVES,TCC_HIT_sum,TCC_MISS_sum\n\
               0,\"k(int, int)\",0,1024,64,0,0,8,0,16,64,0x7f,16,300,100\n";
    let profile = CounterProfile::new(&CounterRow::all(&table(pmc)).unwrap()).unwrap();
    assert_eq!(profile.l2_hit_rate("k(int, int)"), Some(0.75));
    let times = "Dispatch_ID,Kernel_Name,GPU_ID,queue-id,queue-index,pid,tid,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Scratch_Per_Workitem,Arch_VGPR,Accum_VGPR,SGPR,wave_size,sig,obj,DispatchNs,Start_Timestamp,End_Timestamp,CompleteNs\n\
                 0,\"k(int, int)\",0,0,0,1,1,1024,64,0,0,8,0,16,64,0x0,0x7f,1,10,30,40\n";
    assert_eq!(KernelRow::all(&table(times)).unwrap()[0].duration_ns, 20);
    assert!(!CounterRow::fits(&table(times)));
    let info = table("Dispatch_ID,Kernel_Name,GPU_ID\n0,k,0\n");
    assert!(!KernelRow::fits(&info) && !CounterRow::fits(&info));
}

fn long(rows: &[(&str, f64)]) -> Table {
    let mut text = "\"Correlation_Id\",\"Dispatch_Id\",\"Agent_Id\",\"Queue_Id\",\"Process_Id\",\"Thread_Id\",\"Grid_Size\",\"Kernel_Id\",\"Kernel_Name\",\"Workgroup_Size\",\"LDS_Block_Size\",\"Scratch_Size\",\"VGPR_Count\",\"SGPR_Count\",\"Counter_Name\",\"Counter_Value\"\n".to_owned();
    for (counter, value) in rows {
        let dispatch = "1,1,1,1,9,9,1024,5,\"f(int, int)\",64,0,0,8,16";
        text.extend([dispatch, ",\"", counter, "\",", &value.to_string(), "\n"]);
    }
    table(&text)
}

#[test]
fn counters_of_rocprofv3_are_read() {
    let rows = long(&[
        ("SQ_WAVES", 16.0),
        ("SQ_INSTS_VALU", 320.0),
        ("OccupancyPercent", 62.5),
        ("SQC_LDS_BANK_CONFLICT", 10.0),
        ("SQC_LDS_IDX_ACTIVE", 40.0),
        ("L2CacheHit", 90.0),
    ]);
    assert!(CounterRow::fits(&rows));
    let profile = CounterProfile::new(&CounterRow::all(&rows).unwrap()).unwrap();
    let kernel = profile.kernels().next().unwrap();
    assert_eq!(profile.instructions_per_wave(kernel, "VALU"), Some(20.0));
    assert_eq!(profile.occupancy(kernel), Some(0.625));
    assert_eq!(profile.lds_conflict_rate(kernel), Some(0.25));
    assert_eq!(profile.l2_hit_rate(kernel), Some(0.9));
    assert_eq!(profile.memory_bytes(kernel), None, "an uncounted metric is not 0");
}

#[test]
fn zero_counters_are_an_error_with_the_cause() {
    for rows in [&[("SQ_WAVES", 0.0), ("GL2C_HIT_sum", 0.0)][..], &[("SQ_WAVES", 0.0), ("X", 5.0)]]
    {
        let rows = CounterRow::all(&long(rows)).unwrap();
        let error = CounterProfile::new(&rows).unwrap_err();
        assert!(matches!(error, Error::ZeroCounters { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("SQ_WAVES") && text.contains("stable_std"), "{text}");
    }
    let fine = CounterRow::all(&long(&[("SQ_LDS_BANK_CONFLICT", 0.0), ("SQ_WAVES", 4.0)])).unwrap();
    assert!(CounterProfile::new(&fine).is_ok());
}

#[test]
fn timelines_of_rocprof_are_read() {
    let text = r#"{"traceEvents":[{},
        {"args":{"name":"0 CPU HIP API"},"ph":"M","pid":2,"name":"process_name","sort_index":0},
        {"ph":"X","name":"hipMalloc","pid":2,"tid":15,"ts":"100","dur":"5","args":{"BeginNs":"100000"}}]}"#;
    let events = TimelineEvent::parse(text, "results.json").unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(
        (&*events[0].name, events[0].start_us, events[0].duration_us),
        ("hipMalloc", 100.0, 5.0)
    );
    assert!(TimelineEvent::parse("{\"traceEvents\":[{\"ph\":\"X\"}]}", "t").is_err());
    assert!(TimelineEvent::parse("{\"traceEvents\":", "t").is_err());
}

#[test]
fn truncated_tables_do_not_panic() {
    for text in [KERNEL_TRACE_7, KERNEL_TRACE_6, ROCPROF_1] {
        for end in 0..text.len() {
            if let Ok(table) = Table::parse(&text[..end], "cut") {
                drop((KernelRow::all(&table), CounterRow::all(&table)));
            }
        }
    }
}
