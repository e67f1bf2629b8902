package intercept

import "slices"

// A Kind names a method, as driver.Error.Call does.
type Kind string

// The kinds of calls.
const (
	Available   Kind = "Available"
	Processes   Kind = "Processes"
	Alloc       Kind = "Alloc"
	Free        Kind = "Free"
	NewStream   Kind = "NewStream"
	Copy        Kind = "Stream.Copy"
	CopyIn      Kind = "Stream.CopyIn"
	CopyOut     Kind = "Stream.CopyOut"
	Fill        Kind = "Stream.Fill"
	Mark        Kind = "Stream.Mark"
	Reached     Kind = "Stream.Reached"
	WaitFor     Kind = "Stream.WaitFor"
	Sync        Kind = "Stream.Sync"
	CloseStream Kind = "Stream.Close"
	Reserve     Kind = "VirtualMemory.Reserve"
	Release     Kind = "VirtualMemory.Release"
	Create      Kind = "VirtualMemory.Create"
	Drop        Kind = "VirtualMemory.Drop"
	Map         Kind = "VirtualMemory.Map"
	Unmap       Kind = "VirtualMemory.Unmap"
	Launch      Kind = "Kernels.Launch"
	Load        Kind = "Kernels.Load"
	Function    Kind = "Module.Function"
	CloseModule Kind = "Module.Close"

	AllocHost    Kind = "Pinned.AllocHost"
	FreeHost     Kind = "Pinned.FreeHost"
	Register     Kind = "Pinned.Register"
	Unregister   Kind = "Pinned.Unregister"
	CopyInAsync  Kind = "Pinned.CopyInAsync"
	CopyOutAsync Kind = "Pinned.CopyOutAsync"

	Stamp   Kind = "Timing.Stamp"
	Elapsed Kind = "Timing.Elapsed"
	Discard Kind = "Timing.Discard"

	Begin       Kind = "Graphs.Begin"
	End         Kind = "Graphs.End"
	Capturing   Kind = "Graphs.Capturing"
	Ordered     Kind = "Graphs.Ordered"
	LaunchGraph Kind = "Graph.Launch"
	CloseGraph  Kind = "Graph.Close"

	CanAccess Kind = "Peers.CanAccess"
	Enable    Kind = "Peers.Enable"
	Disable   Kind = "Peers.Disable"
	CopyPeer  Kind = "Peers.CopyPeer"
	Share     Kind = "Peers.Share"

	Export       Kind = "Sharing.Export"
	Import       Kind = "Sharing.Import"
	Forget       Kind = "Sharing.Forget"
	CreateShared Kind = "Sharing.CreateShared"
	ExportPage   Kind = "Sharing.ExportPage"
	ImportPage   Kind = "Sharing.ImportPage"
	NewEvent     Kind = "Sharing.NewEvent"
	OpenEvent    Kind = "Sharing.OpenEvent"

	EventHandle  Kind = "SharedEvent.Handle"
	RecordEvent  Kind = "SharedEvent.Record"
	WaitEvent    Kind = "SharedEvent.Wait"
	EventReached Kind = "SharedEvent.Reached"
	CloseEvent   Kind = "SharedEvent.Close"
)

var kinds = []Kind{
	Available, Processes, Alloc, Free, NewStream, Copy, CopyIn, CopyOut, Fill, Mark, Reached, WaitFor, Sync,
	CloseStream,
	Reserve, Release, Create, Drop, Map, Unmap, Launch, Load, Function, CloseModule,
	AllocHost, FreeHost, Register, Unregister, CopyInAsync, CopyOutAsync, Stamp, Elapsed, Discard,
	Begin, End, Capturing, Ordered, LaunchGraph, CloseGraph, CanAccess, Enable, Disable, CopyPeer, Share,
	Export, Import, Forget, CreateShared, ExportPage, ImportPage,
	NewEvent, OpenEvent, EventHandle, RecordEvent, WaitEvent, EventReached, CloseEvent,
}

// Kinds returns all kinds of calls.
func Kinds() []Kind { return slices.Clone(kinds) }
