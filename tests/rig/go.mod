// What these programs are built with is in releases/, a file for each release of Kubernetes; see build and pin.
module alignup.invalid/rig

go 1.26.0
