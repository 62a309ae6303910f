module hapax/kfake

go 1.25.0

require github.com/twmb/franz-go/pkg/kfake v0.0.0-20260804154521-adb3a18abe14
