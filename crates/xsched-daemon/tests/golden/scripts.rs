//! Written worlds, one step a line.

use crate::world::{Disturbed, Setting, World};

/// Written world.
pub(crate) struct Script {
    pub(crate) name: &'static str,
    names: &'static str,
    setting: Setting,
    steps: &'static str,
}

impl Script {
    /// Plays the world.
    ///
    /// # Errors
    /// The world was disturbed by time.
    pub(crate) fn play(&self) -> Result<Vec<String>, Disturbed> {
        let mut world = World::new(self.names, self.setting);
        self.steps.lines().map(str::trim).filter(|line| !line.is_empty()).for_each(|step| world.step(step));
        world.end()
    }
}

const PLAIN: Setting =
    Setting { config: 0, policy: None, yields: None, hides_exclusive: false, is_slow: false, has_log: false };
const LOGGED: Setting = Setting { has_log: true, ..PLAIN };

/// All written worlds except that of the commands.
pub(crate) static SCRIPTS: [Script; 12] = [
    Script {
        name: "come-and-go",
        names: "abcdef",
        setting: LOGGED,
        steps: "
            attach a p=-128
            add a 0 sim:0
            words a 0=R
            attach b p=128
            add b 0 sim:0
            words b 0=R
            words a 0=D
            words b 0=I
            words a 0=R
            attach c p=0
            add c 0 sim:0
            add c 1 sim:1
            words c 0=R 1=R
            words b 0=R
            attach d p=128
            add d 3 sim:0
            words d 3=R
            leave b
            kill d
            remove c 0
            attach b
            add b 0 sim:1 fixed=-5
            words b 0=R
            bad c add-taken
            attach c p=200
            bad c hello
            attach e p=255
            add e 0 sim:0 fixed=250
            words e 0=?
            attach f
            bad f add-device
            attach f
            bad f add-priority
            attach f
            bad f queue-slot
            attach f
            add f 0 sim:0
            bad f ghint-range
            leave a",
    },
    Script {
        name: "levels",
        names: "abc",
        setting: PLAIN,
        steps: "
            attach a p=-128 level=3
            add a 0 sim:0 lv=123
            attach b p=128
            add b 0 sim:0 lv=12
            words a 0=R
            words b 0=R
            levels a 0 12
            levels a 0 123
            hint pid:a level=3
            hint pid:a level=2
            hint pid:a level=3
            words b 0=I
            words b 0=R
            hint pid:b level=3
            hint pid:a,pid:b level=3
            add a 1 sim:0 lv=123
            words b 0=I
            words b 0=R
            remove a 1
            words b 0=I
            words b 0=R
            words b 0=I
            policy up
            policy hpf
            levels a 0 1
            hint pid:a level=2
            attach c p=0 dom=exempt
            add c 0 sim:0 lv=123
            suspend pid:a
            levels a 0 123
            hint pid:a level=3
            resume pid:a
            leave b",
    },
    Script {
        name: "lent",
        names: "abc",
        setting: PLAIN,
        steps: "
            attach a p=-60
            add a 0 sim:0
            add a 1 sim:0 fixed=90
            add a 2 sim:1 steps=2
            attach b p=10
            add b 0 sim:0
            add b 1 sim:1
            words b 0=R 1=R
            words a 0=R 2=R
            words a 0<80
            words a 0<250 2<250
            words a 0<-
            words a 1=R
            words a 1=I 0=I 2<-
            words a 0<20 0=R
            remove a 1
            ghint a 0 p=15
            hint pid:a p=40
            hint pid:a p=-40
            attach c p=30
            add c 0 sim:0 sys
            add c 1 sim:0
            words c 0=R 1=R
            words c 1<30
            words c 1<- 0=I
            leave c
            words a 0<-",
    },
    Script {
        name: "held",
        names: "abcd",
        setting: Setting { hides_exclusive: true, ..LOGGED },
        steps: "
            attach a p=0 job=x
            attach b p=0 job=x
            attach c p=128
            add a 0 sim:0
            add b 0 sim:0
            add c 0 sim:0
            words a 0=R
            words b 0=R
            suspend job:x
            suspend job:x
            add a 1 sim:1
            words a 1=R
            words c 0=R
            suspend all
            resume pid:b
            words c 0=I
            resume pid:c,pid:a
            suspend pid:a,pid:none
            suspend tree:test
            leave a
            attach a p=0
            add a 0 sim:0
            words a 0=R
            resume user:own
            suspend pid:d
            suspend user:77777
            kill b",
    },
    Script {
        name: "slices",
        names: "abcd",
        setting: Setting { is_slow: true, ..PLAIN },
        steps: "
            attach a p=-128
            add a 0 pci:0000:01:00.0 cuda lv=123
            attach b p=128
            add b 0 pci:0000:01:00.0 cuda lv=123
            attach c p=-128
            add c 0 pci:0000:01:00.0 cuda lv=123
            words a 0=R
            words b 0=R
            words b 0=I
            words a 0~S
            words b 0=R
            words b 0=I
            words a 0~L
            words b 0=R
            words b 0=I
            hint pid:a slice=700
            hint pid:a p=100
            hint pid:a p=-100
            hint pid:c level=1
            hint pid:c level=3
            attach d p=-60 slice=900
            add d 0 pci:0000:02:00.0 cuda lv=123
            add d 1 pci:0000:01:00.0 cuda lv=123
            words d 0=R 1=R
            phint d slice=1000
            leave c
            remove d 1
            leave d
            leave b",
    },
    Script {
        name: "company",
        names: "abcde",
        setting: Setting { yields: Some("1"), is_slow: true, ..PLAIN },
        steps: "
            attach a p=-128
            add a 0 pci:0000:01:00.0 cuda lv=123 spatial=5
            attach b p=128
            add b 0 pci:0000:01:00.0 cuda lv=123 spatial=5
            words b 0^1
            words a 0=R
            words b 0=R
            words a 0=D
            words b 0^0
            words b 0^1
            attach c p=60
            add c 0 pci:0000:01:00.0 cuda lv=123 spatial=5
            words c 0^1 0=R
            words b 0=I
            words b 0=R
            attach d p=191
            add d 0 pci:0000:01:00.0 cuda lv=123 spatial=6
            words d 0=R
            words d 0=I
            attach e p=0
            add e 0 pci:0000:01:00.0 cuda lv=123
            words e 0=R
            words b 0=I
            words c 0=I
            leave e
            words b 0=R
            leave b
            words c 0=R
            attach b p=255
            add b 0 pci:0000:01:00.0 cuda lv=123 spatial=5
            words b 0^1 0=R
            kill a
            remove c 0
            leave d",
    },
    Script {
        name: "configured",
        names: "abcde",
        setting: Setting { config: 1, has_log: true, ..PLAIN },
        steps: "
            attach a p=128
            attach b p=128
            attach c p=255 w=10
            attach d dom=exempt
            attach e
            add a 0 sim:0 opencl lv=12
            add b 0 sim:0 hip lv=12
            add c 0 sim:0 lv=12
            add d 0 sim:0 lv=123
            add e 0 sim:1 sys lv=12
            add e 1 sim:1 steps=9
            add e 2 sim:1 fixed=120
            words b 0=R
            words c 0=R
            words e 0=R 1=R 2=R
            reload 2
            hint pid:b p=50
            hint pid:e p=90
            hint pid:e p=-20
            reload 1
            words a 0=R
            reload 3
            hint pid:c p=150
            ghint c 0 p=180
            reload 0
            words b 0=I
            leave a",
    },
    Script {
        name: "turns",
        names: "abc",
        setting: PLAIN,
        steps: "
            attach a p=-60
            attach b p=60
            attach c p=60 level=2
            add a 0 sim:0 opencl lv=12
            add b 0 sim:0 lv=123
            add b 1 sim:1 lv=12
            add c 0 sim:1 lv=12
            policy up
            hint pid:a w=50
            words a 0=R
            words a 0=I
            words b 0=R
            policy hpf dev=sim:1
            words b 0=I
            policy hpf
            policy pup dev=sim:1
            words b 1=R
            words b 1=I
            reload 5
            levels a 0 1
            levels a 0 12
            reload 0",
    },
    Script {
        name: "shares",
        names: "abu",
        setting: Setting { config: 4, ..PLAIN },
        steps: "
            attach a w=200
            attach b util=30
            attach u w=9000
            add a 0 sim:0
            add b 0 sim:0
            add u 0 sim:0
            policy up
            ps
            ghint u 0 w=9000
            ps
            phint u w=200
            ps
            as u hint pid:u w=100
            hint pid:u w=1000
            ps
            reload 5
            policy fair
            ps
            hint pid:b,pid:a util=10
            ps",
    },
    Script {
        name: "policies",
        names: "abc",
        setting: Setting { policy: Some("awf"), ..PLAIN },
        steps: "
            attach a p=-60
            attach b p=60 deadline=500
            attach c p=60
            add a 0 sim:0
            add b 0 sim:0
            add b 1 sim:1
            add c 0 sim:1
            words a 0=R
            words b 0=R
            words c 0=R
            window a
            window b
            window -
            phint a active=1
            policy hpf
            policy observe dev=sim:0
            words b 0=I
            policy HHPF
            words b 1=R
            words b 1=I
            policy chpf dev=sim:1
            policy hpf
            policies",
    },
    Script {
        name: "nice",
        names: "abc",
        setting: Setting { policy: Some("chpf"), ..PLAIN },
        steps: "
            attach a nice=3
            attach b nice=1
            attach c nice=5
            add a 0 sim:0
            add b 0 sim:0
            add c 0 sim:1
            words a 0=R
            words b 0=R
            nice b 10
            words a 0=I
            words a 0=R
            policy hpf
            policy chpf
            leave a",
    },
    // Programs from `u` on belong to another user, with limits. `as` gives a command in such a program's name.
    Script {
        name: "users",
        names: "abuvw",
        setting: Setting { config: 4, has_log: true, hides_exclusive: true, ..PLAIN },
        steps: "
            attach a p=60 job=x
            add a 0 sim:0 opencl lv=12
            words a 0=R
            attach u p=200 w=5000 slice=900000 job=x dom=exempt
            attach v dom=exempt
            attach w p=255
            add u 0 sim:0 ready
            add v 0 sim:0 opencl lv=123 ready
            add w 0 sim:0 sys ready
            add w 1 sim:0 fixed=200
            ghint u 0 p=255 w=9000
            phint u w=9000 util=50
            words a 0=I
            words a 0=R
            queue u 0 0
            queue u 1 0
            as u hint pid:u p=127
            as u hint pid:u p=128
            as u hint pid:u w=5000 slice=1000000
            as u hint pid:v p=150
            as u hint pid:w p=50
            as u hint pid:w p=30
            as u hint pid:a p=1
            as u hint pid:u,pid:a p=1
            as u hint tree:test p=2
            as u hint job:x p=3
            as u hint all p=4
            as u hint user:own p=5
            as u hint user:65534 p=6
            as u hint queue:0 p=7
            as u hint queue:0 p=200
            as u suspend all
            as u suspend pid:a
            as u suspend pid:none
            as u resume user:65534
            as u policy up
            as u policies
            as u window u
            as u window a
            suspend all
            resume all
            hint pid:u p=200 w=5000
            hint queue:0 p=250
            ghint u 0 p=255
            as u hint pid:u p=10
            reload 0
            reload 4
            attach b p=10
            add b 0 sim:0
            queue u 2 0",
    },
];

/// World of commands and their answers.
pub(crate) static COMMANDS: Script = Script {
    name: "commands",
    names: "abcd",
    setting: Setting { config: 1, has_log: true, hides_exclusive: true, ..PLAIN },
    steps: "
        attach a p=0 job=x
        attach b p=-128 job=y
        attach c p=100
        add a 0 sim:0 lv=12
        add a 1 sim:1 lv=1
        add b 0 sim:0 opencl lv=123
        add c 0 sim:0 lv=1
        queue a 0 0
        queue a 1 1
        queue b 5 0
        words a 0=R
        words b 0=R
        hint pid:a p=10
        hint pid:a p=10 w=200 slice=900 util=40
        hint pid:a lax=500/-10/90
        hint pid:a thr=4 batch=2
        hint pid:a thr=0 batch=0
        hint pid:a level=2
        hint pid:c level=3
        hint pid:a,pid:c level=2
        hint pid:b p=150
        hint job:x,job:y w=70
        hint user:own p=-5
        hint tree:test p=5
        hint pid:test p=6
        hint pid:init p=7
        hint tree:init p=8
        hint all p=9 level=1
        hint pid:a,pid:a,all w=33
        hint pid:a
        hint queue:0 p=50
        hint queue:1 level=1 thr=3
        hint queue:1 level=3
        hint queue:2 p=20 w=9
        hint pid:a,queue:2 p=30
        hint queue:none p=1
        hint pid:b,queue:none p=1
        hint pid:a p=256
        hint pid:a w=0
        hint pid:a util=101
        hint pid:a slice=1
        hint pid:a level=4
        hint pid:none p=1
        hint pid:d p=1
        hint tree:d p=1
        hint job:none p=1
        hint user:77777 p=1
        suspend pid:a
        suspend pid:a,pid:b
        suspend queue:0
        suspend pid:a,queue:none
        suspend job:none
        suspend all
        resume tree:test
        resume job:x
        resume pid:d
        window c
        window none
        policies
        words a 0=I
        words b 0=I
        policy up
        policy up dev=sim:1
        policy fifo
        policy external
        policy hpf k=2
        policy cfs latency_us=5000 granularity_us=500
        policy cfs latency_us=1
        policy edf
        hint pid:a w=120 util=30 active=1
        policies
        policy hpf
        unqueue b 5
        leave a
        hint job:x w=1
        hint all p=0",
};
